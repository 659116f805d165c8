------------------------------- MODULE Groups -------------------------------
(* Several Raft logs that make one state: the rules of cpp/GROUPS.md.        *)
(*                                                                           *)
(* A log is a sequence that only grows at its end: what Raft gives, and all  *)
(* that is assumed of it. Every node applies every log in order; logs wait   *)
(* for each other by `needs` and for nothing else. Whatever a node that      *)
(* executes statements does next, it may as well never do: nothing of it is  *)
(* fair, so it may die at any step, and what it has proposed may be          *)
(* committed at any later time.                                              *)
(*                                                                           *)
(* README.md says what is left out. Scenarios are in Scenarios.tla, the      *)
(* properties at the end. `Mutant` breaks one rule, to show that the         *)
(* properties notice.                                                        *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Nodes,       \* every node runs every group
    Groups,      \* 1 .. n; 1 is the root group
    NewGroups,   \* those that do not exist before a table is placed there
    Tables,
    Keyed,       \* tables with a primary key `a` and a unique column `b`; the others have no key
    RowSet,      \* rows that occur, records [a, b]
    InitPlaces,  \* [Tables -> sequence of groups]: row r belongs to the (r.a mod length)-th; <<>> = no such table
    InitRows,    \* [Tables -> set of rows]
    Txns,        \* [id -> transaction]: each is executed at most once, by one node; a repetition has another id
    InTurn,      \* ids that take their groups one after the other
    Sought,      \* ids whose client asks another node what became of them
    MaxCopies,   \* how often a proposal may be committed
    MaxRestarts, \* of all nodes together
    Mutant       \* "" or the rule that is broken

VARIABLES
    log,      \* [Groups -> sequence of entries [k, id, at]]
    state,    \* [Nodes -> what a node made of the entries it applied]
    saved,    \* [Nodes -> its last checkpoint]
    restarts,
    plan,     \* [id -> what the executing node planned]
    finder,   \* [id -> what the node that looks for its outcome has done]
    answer    \* [id -> what the client was told by it: "", "yes", "no"]

vars == <<log, state, saved, restarts, plan, finder, answer>>

Root == 1
Ids == DOMAIN Txns
Is(name) == Mutant = name
Range(s) == {s[i] : i \in 1..Len(s)}
Least(S) == CHOOSE x \in S : \A y \in S : x <= y
Greatest(S) == CHOOSE x \in S : \A y \in S : x >= y

-----------------------------------------------------------------------------
(* Operations, their groups and their locks.                                 *)
(* [k |-> "ins" | "del", t, r]    a row comes or goes                        *)
(* [k |-> "read", t]              a table is read by a serializable one      *)
(* [k |-> "place", t, to]         DDL: the table changes, lives in `to` then *)
(* [k |-> "fence", t]             what "place" means in a group of the table *)
(* [k |-> "retire", g]            a group ends                               *)
(* [k |-> "close"]                what "retire" means in that group          *)

AllTables == "*"     \* the lock of a whole group
IsRowOp(op) == op.k \in {"ins", "del"}

RowKeys(op) ==
    IF op.t \in Keyed
    THEN IF op.k = "del" /\ Is("old-row-locks-one-key")
         THEN {<<"a", op.r.a>>}
         ELSE {<<"a", op.r.a>>, <<"b", op.r.b>>}
    ELSE IF op.k = "ins" /\ (Is("new-row-without-key-is-free") \/ Is("keyless-insert-locks-nothing"))
         THEN {}
         ELSE {<<"row", op.r.a, op.r.b>>}

LocksOf(op) ==
    CASE IsRowOp(op) -> {[t |-> op.t, m |-> "row", r |-> key] : key \in RowKeys(op)}
                            \cup (IF Is("keyless-insert-locks-nothing") THEN {} ELSE {[t |-> op.t, m |-> "write", r |-> <<>>]})
      [] op.k = "read" -> IF Is("reads-take-no-lock") THEN {} ELSE {[t |-> op.t, m |-> "shared", r |-> <<>>]}
      [] op.k \in {"place", "fence"} -> {[t |-> op.t, m |-> "whole", r |-> <<>>]}
      [] op.k = "close" -> {[t |-> AllTables, m |-> "whole", r |-> <<>>]}
      [] OTHER -> {}

LocksOfPart(ops) ==
    {[t |-> AllTables, m |-> "write", r |-> <<>>]} \cup UNION {LocksOf(ops[i]) : i \in 1..Len(ops)}

Clash(some, others) ==
    \E x \in some, y \in others :
        /\ x.t = y.t
        /\ \/ x.m = "whole" \/ y.m = "whole"
           \/ x.m = "row" /\ y.m = "row" /\ x.r = y.r
           \/ x.m = "shared" /\ y.m \in {"row", "write"}
           \/ y.m = "shared" /\ x.m \in {"row", "write"}

GroupOf(defs, t, r) == defs[t].place[(r.a % Len(defs[t].place)) + 1]

\* The groups of an operation, as planned on these definitions.
GroupsOf(defs, op) ==
    CASE IsRowOp(op) -> {GroupOf(defs, op.t, op.r)}
      [] op.k = "read" -> Range(defs[op.t].place) \cup {Root}
      [] op.k = "place" -> {Root} \cup (IF Is("no-fence") THEN {} ELSE Range(defs[op.t].place))
      [] op.k = "retire" -> {Root, op.g}

\* What an operation is in one of its groups.
InGroup(op, g) ==
    CASE op.k = "place" /\ g # Root -> [k |-> "fence", t |-> op.t]
      [] op.k = "retire" /\ g # Root -> [k |-> "close"]
      [] OTHER -> op

RECURSIVE PartOf(_, _, _)
PartOf(defs, ops, g) ==
    IF ops = <<>> THEN <<>>
    ELSE (IF g \in GroupsOf(defs, Head(ops)) THEN <<InGroup(Head(ops), g)>> ELSE <<>>)
            \o PartOf(defs, Tail(ops), g)

PartsOf(defs, ops) ==
    [g \in UNION {GroupsOf(defs, ops[i]) : i \in 1..Len(ops)} |-> PartOf(defs, ops, g)]

-----------------------------------------------------------------------------
(* A node's state. `results` has one word per applied entry, so its lengths  *)
(* are the applied vector. The last three are for the properties only.       *)

InitState ==
    [results |-> [g \in Groups |-> <<>>],
     rows    |-> [t \in Tables |-> [r \in RowSet |-> IF r \in InitRows[t] THEN 1 ELSE 0]],
     defs    |-> [t \in Tables |-> [version |-> 0, place |-> InitPlaces[t]]],
     version |-> 0,                       \* root index of the last change of definitions
     parts   |-> {},                      \* prepared: [g, id, i]
     groups  |-> Groups \ NewGroups,      \* all that were created
     retired |-> [g \in Groups |-> 0],    \* root index of the retirement
     asked   |-> [id \in Ids |-> {}],     \* groups that existed at the void entry in the root
     done    |-> {},                      \* <<id, group>> whose effects took place
     twice   |-> {},                      \* ids with an effect that took place again
     stale   |-> {}]                      \* ids with an effect on a table that had changed or was not in that group

Applied(s, g) == Len(s.results[g])

\* The entry that counts for a transaction in a group, as far as applied; 0 = none yet.
Counting == {"data", "decision", "void"}
CountingIndex(s, g, id) ==
    LET found == {i \in 1..Applied(s, g) : log[g][i].k \in Counting /\ log[g][i].id = id}
    IN IF found = {} THEN 0 ELSE Least(found)
IsCommitted(s, g, id) ==
    \E i \in 1..Applied(s, g) : log[g][i].id = id /\ s.results[g][i] = "ok"

LocksHeld(s, g, other) ==
    UNION {LocksOfPart(plan[p.id].parts[g]) : p \in {q \in s.parts : q.g = g /\ q.id # other}}

IsLocked(s, g, id) == Clash(LocksOfPart(plan[id].parts[g]), LocksHeld(s, g, id))

\* A table that the part names changed after it was planned.
IsOutdated(s, g, id) ==
    /\ ~Is("no-version-check")
    /\ \E op \in Range(plan[id].parts[g]) : op.k \notin {"retire", "close"} /\ s.defs[op.t].version > plan[id].version

\* Executes operations one after the other; "ok" is FALSE when one of them cannot be.
Fits(s, op, seen) ==
    CASE op.k = "ins" ->
            /\ s.defs[op.t].place # <<>>
            /\ op.t \in Keyed => \A r \in RowSet : s.rows[op.t][r] > 0 => r.a # op.r.a /\ r.b # op.r.b
      [] op.k = "del" -> s.defs[op.t].place # <<>> /\ s.rows[op.t][op.r] > 0
      [] op.k = "read" -> s.rows[op.t] = seen[op.t] \/ Is("reads-are-not-checked")
      [] op.k = "place" -> \A g \in Range(op.to) : s.retired[g] = 0
      [] op.k = "retire" -> s.retired[op.g] = 0 /\ \A t \in Tables : op.g \notin Range(s.defs[t].place)
      [] OTHER -> TRUE

Run1(s, op, index) ==
    CASE op.k = "ins" -> [s EXCEPT !.rows[op.t][op.r] = @ + 1]
      [] op.k = "del" -> [s EXCEPT !.rows[op.t][op.r] = @ - 1]
      [] op.k = "place" -> [s EXCEPT !.defs[op.t] = [version |-> index, place |-> op.to], !.version = index,
                                     !.groups = @ \cup Range(op.to)]
      [] op.k = "retire" -> [s EXCEPT !.retired[op.g] = index, !.version = index,
                                      !.parts = {p \in @ : p.g # op.g}]
      [] OTHER -> s

RECURSIVE Run(_, _, _, _)
Run(s, ops, seen, index) ==
    IF ops = <<>> THEN [ok |-> TRUE, s |-> s]
    ELSE IF ~Fits(s, Head(ops), seen) THEN [ok |-> FALSE, s |-> s]
    ELSE Run(Run1(s, Head(ops), index), Tail(ops), seen, index)

\* Marks for the properties: the effects of `id` in these groups take place in state s.
Mark(s, id, groups) ==
    [s EXCEPT
        !.done = @ \cup {<<id, g>> : g \in groups},
        !.twice = IF \E g \in groups : <<id, g>> \in s.done THEN @ \cup {id} ELSE @,
        !.stale = IF \E g \in groups : \E op \in Range(plan[id].parts[g]) :
                        /\ op.k \in {"ins", "del", "place"}
                        /\ \/ s.defs[op.t].version > plan[id].version
                           \/ IsRowOp(op) /\ (s.defs[op.t].place = <<>> \/ GroupOf(s.defs, op.t, op.r) # g)
                  THEN @ \cup {id} ELSE @]

Result(s, g, word) == [s EXCEPT !.results[g] = Append(@, word)]

-----------------------------------------------------------------------------
(* What an entry does on a node.                                             *)

\* Order matters: until a change of a table is released, some nodes have it and others have not. Names and locks first.
Refusal(s, g, id) ==
    IF Is("definitions-before-locks") /\ IsOutdated(s, g, id) THEN "outdated"
    ELSE IF IsLocked(s, g, id) THEN "locked"
    ELSE IF IsOutdated(s, g, id) THEN "outdated"
    ELSE ""

ApplyData(s, g, id) ==
    LET refusal == IF Is("data-ignores-locks") THEN (IF IsOutdated(s, g, id) THEN "outdated" ELSE "")
                   ELSE Refusal(s, g, id)
        run == Run(s, Txns[id].ops, plan[id].seen, Applied(s, g) + 1)
    IN IF CountingIndex(s, g, id) # 0 /\ ~Is("every-copy-counts") THEN Result(s, g, "again")
       ELSE IF refusal # "" THEN Result(s, g, refusal)
       ELSE IF ~run.ok THEN Result(s, g, "misfit")
       ELSE Result([Mark(s, id, {g}) EXCEPT !.rows = run.s.rows, !.defs = run.s.defs, !.version = run.s.version,
                                          !.groups = run.s.groups],
                   g, "ok")

ApplyPrepare(s, g, id) ==
    LET refusal == IF Is("prepare-ignores-locks") THEN (IF IsOutdated(s, g, id) THEN "outdated" ELSE "")
                   ELSE Refusal(s, g, id)
        early == Run(s, plan[id].parts[g], plan[id].seen, 0)
        granted == [s EXCEPT !.parts = @ \cup {[g |-> g, id |-> id, i |-> Applied(s, g) + 1]}]
    IN IF \E p \in s.parts : p.g = g /\ p.id = id THEN Result(s, g, "again")
       ELSE IF CountingIndex(s, g, id) # 0 THEN Result(s, g, "void")
       ELSE IF refusal # "" THEN Result(s, g, refusal)
       ELSE IF Is("part-is-visible-when-prepared") /\ early.ok
            THEN Result([Mark(s, id, {g}) EXCEPT !.rows = early.s.rows, !.parts = granted.parts], g, "granted")
       ELSE Result(granted, g, "granted")

\* The parts that a decision executes: all, in the order in which the transaction produced their effects.
DecisionOps(s, g, id) ==
    IF Is("part-is-visible-when-released") THEN plan[id].parts[g] ELSE Txns[id].ops

ApplyDecision(s, g, id) ==
    LET early == {h \in Groups : <<id, h>> \in s.done}
        run == Run(s, IF early = {} THEN DecisionOps(s, g, id) ELSE plan[id].parts[g], plan[id].seen, Applied(s, g) + 1)
        groups == IF Is("part-is-visible-when-released") THEN {g} ELSE DOMAIN plan[id].parts \ early
        refusal == IF Is("decision-ignores-locks") THEN (IF IsOutdated(s, g, id) THEN "outdated" ELSE "")
                   ELSE Refusal(s, g, id)
    IN IF CountingIndex(s, g, id) # 0 /\ ~Is("every-copy-counts") THEN Result(s, g, "again")
       ELSE IF \E p \in plan[id].prepares : [g |-> p[1], id |-> id, i |-> p[2]] \notin s.parts
            THEN Result(s, g, "unprepared")
       ELSE IF refusal # "" THEN Result(s, g, refusal)
       ELSE IF ~run.ok THEN Result(s, g, "misfit")
       ELSE Result([Mark(s, id, groups) EXCEPT
                        !.rows = run.s.rows, !.defs = run.s.defs, !.version = run.s.version,
                        !.parts = run.s.parts, !.retired = run.s.retired, !.groups = run.s.groups],
                   g, "ok")

ApplyRelease(s, g, e) ==
    LET id == e.id
        late == Run(s, plan[id].parts[g], plan[id].seen, 0)
        freed == {p \in s.parts : p.g # g \/ p.id # id}
    IN IF /\ Is("part-is-visible-when-released") /\ freed # s.parts
          /\ IsCommitted(s, plan[id].coordinator, id) /\ late.ok
       THEN Result([Mark(s, id, {g}) EXCEPT !.rows = late.s.rows, !.parts = freed], g, "released")
       ELSE Result([s EXCEPT !.parts = freed], g, "released")

Asked(s, g, id) ==
    IF g = Root THEN [s EXCEPT !.asked[id] = {h \in s.groups : s.retired[h] = 0}] ELSE s

ApplyVoid(s, g, id) ==
    IF CountingIndex(s, g, id) # 0 THEN Result(Asked(s, g, id), g, "again") ELSE Result(Asked(s, g, id), g, "void")

Needs(g, e) ==
    LET planned == IF Is("planned-version-not-needed") THEN {} ELSE {<<Root, plan[e.id].version>>}
    IN CASE e.k \in {"data", "prepare"} -> planned
         [] e.k = "decision" -> planned \cup (IF Is("prepares-not-needed") THEN {} ELSE plan[e.id].prepares)
         [] e.k = "release" -> IF Is("decision-not-needed") THEN {} ELSE {e.at}
         [] OTHER -> {}

\* A position in a retired group counts as applied: whatever could have an effect there was before its fence.
IsMet(s, need) ==
    \/ Applied(s, need[1]) >= need[2]
    \/ s.retired[need[1]] # 0 /\ ~Is("retired-positions-are-needed")

CanApply(s, g) ==
    /\ g \in s.groups /\ s.retired[g] = 0
    /\ Applied(s, g) < Len(log[g])
    /\ \A need \in Needs(g, log[g][Applied(s, g) + 1]) : IsMet(s, need)

ApplyNext(s, g) ==
    LET e == log[g][Applied(s, g) + 1]
    IN CASE e.k = "data" -> ApplyData(s, g, e.id)
         [] e.k = "prepare" -> ApplyPrepare(s, g, e.id)
         [] e.k = "decision" -> ApplyDecision(s, g, e.id)
         [] e.k = "release" -> ApplyRelease(s, g, e)
         [] e.k = "void" -> ApplyVoid(s, g, e.id)

Apply(n) ==
    /\ \E g \in Groups :
        /\ CanApply(state[n], g)
        /\ state' = [state EXCEPT ![n] = ApplyNext(state[n], g)]
    /\ UNCHANGED <<log, saved, restarts, plan, finder, answer>>

-----------------------------------------------------------------------------
(* What is committed.                                                        *)

\* A retired group takes nothing once all nodes have stopped it.
Commit(g, e) ==
    /\ \E n \in Nodes : state[n].retired[g] = 0
    /\ log' = [log EXCEPT ![g] = Append(@, e)]

Copies(g, e) == Cardinality({i \in 1..Len(log[g]) : log[g][i] = e})
Entry(k, id) == [k |-> k, id |-> id, at |-> <<0, 0>>]

(* The executing node.                                                       *)

NoPlan == [n |-> "", version |-> 0, parts |-> <<>>, phase |-> "none", prepares |-> {}, seen |-> <<>>, saw |-> {},
           coordinator |-> 0]
HasReads(id) == \E op \in Range(Txns[id].ops) : op.k = "read"

KnowsVoid(s, id) == \E g \in Groups : CountingIndex(s, g, id) # 0

\* The statement is executed on what the node has applied, and found good there.
Plan(n, id) ==
    LET s == state[n]
        ops == Txns[id].ops
        parts == PartsOf(s.defs, ops)
    IN /\ plan[id].phase = "none"
       /\ ~KnowsVoid(s, id) \/ Is("proposes-what-is-void")
       /\ \A i \in 1..Len(ops) : ops[i].k \in {"ins", "del", "read"} => s.defs[ops[i].t].place # <<>>
       /\ Run(s, ops, s.rows, 0).ok
       /\ Txns[id].after = 0 \/ s.version # 0   \* begins when a change is known
       /\ plan' = [plan EXCEPT ![id] =
            [n |-> n, version |-> s.version, parts |-> parts, phase |-> "planned", prepares |-> {},
             seen |-> IF HasReads(id) THEN s.rows ELSE <<>>,
             saw |-> IF HasReads(id) THEN {d[1] : d \in s.done} ELSE {},
             coordinator |-> Least(DOMAIN parts)]]
       /\ UNCHANGED <<log, state, saved, restarts, finder, answer>>

IsPlanned(id) == plan[id].phase # "none"
IsSingle(id) == Cardinality(DOMAIN plan[id].parts) = 1
Participants(id) == DOMAIN plan[id].parts \ {plan[id].coordinator}

GrantedAt(s, g, id) ==
    LET found == {i \in 1..Applied(s, g) : log[g][i] = Entry("prepare", id) /\ s.results[g][i] \in {"granted"}}
    IN IF found = {} THEN 0 ELSE Least(found)

CommitData(id) ==
    /\ IsPlanned(id) /\ IsSingle(id)
    /\ Copies(plan[id].coordinator, Entry("data", id)) < MaxCopies
    /\ Commit(plan[id].coordinator, Entry("data", id))
    /\ UNCHANGED <<state, saved, restarts, plan, finder, answer>>

\* The coordinator, the smallest group, is last: downwards is one order for all groups of a transaction.
IsBefore(g, h) == IF Is("upwards") THEN g < h ELSE g > h

CommitPrepare(id, g) ==
    /\ IsPlanned(id) /\ ~IsSingle(id) /\ g \in Participants(id)
    /\ id \in InTurn => \A h \in Participants(id) : IsBefore(h, g) => GrantedAt(state[plan[id].n], h, id) # 0
    /\ Copies(g, Entry("prepare", id)) < MaxCopies
    /\ Commit(g, Entry("prepare", id))
    /\ UNCHANGED <<state, saved, restarts, plan, finder, answer>>

\* All prepares are applied and granted on the executing node.
Decide(id) ==
    /\ plan[id].phase = "planned" /\ ~IsSingle(id)
    /\ LET s == state[plan[id].n]
           at(g) == IF Is("needs-are-guessed") THEN Len(log[g]) + 1 ELSE GrantedAt(s, g, id)
       IN /\ \A g \in Participants(id) : at(g) # 0
          /\ plan' = [plan EXCEPT ![id].phase = "decided",
                                  ![id].prepares = {<<g, at(g)>> : g \in Participants(id)}]
    /\ Commit(plan[id].coordinator, Entry("decision", id))
    /\ UNCHANGED <<state, saved, restarts, finder, answer>>

CommitDecisionAgain(id) ==
    /\ plan[id].phase = "decided"
    /\ Copies(plan[id].coordinator, Entry("decision", id)) < MaxCopies
    /\ Commit(plan[id].coordinator, Entry("decision", id))
    /\ UNCHANGED <<state, saved, restarts, plan, finder, answer>>

(* Whoever leads a group with a prepared part; also the executing node when  *)
(* it gives up or is done.                                                   *)

OutcomeAt(s, id) ==
    LET c == plan[id].coordinator
        i == CountingIndex(s, c, id)
    IN IF s.retired[c] # 0 /\ ~IsCommitted(s, c, id) /\ ~Is("retired-coordinator-decides")
       THEN <<Root, s.retired[c]>>     \* nothing can be committed there any more
       ELSE <<c, i>>

Finish(n, g, id) ==
    LET s == state[n]
        part == CHOOSE p \in s.parts : p.g = g /\ p.id = id
        outcome == OutcomeAt(s, id)
        c == plan[id].coordinator
        isReleased == \E i \in (part.i + 1)..Len(log[g]) : log[g][i].k = "release" /\ log[g][i].id = id
    IN /\ ~Is("nobody-finishes")
       /\ \E p \in s.parts : p.g = g /\ p.id = id
       /\ IF outcome[2] # 0 \/ Is("released-without-outcome")
          THEN ~isReleased /\ Commit(g, [k |-> "release", id |-> id, at |-> outcome])
          ELSE /\ \A i \in 1..Len(log[c]) : log[c][i] # Entry("void", id)
               /\ Commit(c, Entry("void", id))
       /\ UNCHANGED <<state, saved, restarts, plan, finder, answer>>

FinishSome == \E n \in Nodes : \E p \in state[n].parts : Finish(n, p.g, p.id)

(* Whoever is asked what became of a transaction: void entries, the root     *)
(* first.                                                                    *)

HasVoid(g, id) == \E i \in 1..Len(log[g]) : log[g][i] = Entry("void", id)
VoidIndex(g, id) == Least({i \in 1..Len(log[g]) : log[g][i] = Entry("void", id)})

SeekFirst(id) ==
    /\ finder[id] = "none" /\ id \in Sought
    /\ finder' = [finder EXCEPT ![id] = "seeking"]
    /\ IF HasVoid(Root, id) THEN UNCHANGED log ELSE Commit(Root, Entry("void", id))
    /\ UNCHANGED <<state, saved, restarts, plan, answer>>

SeekNext(id, g) ==
    /\ finder[id] = "seeking" /\ g # Root
    /\ \E n \in Nodes : g \in state[n].asked[id]
    /\ ~Is("root-only-is-asked")
    /\ ~HasVoid(g, id)
    /\ Commit(g, Entry("void", id))
    /\ UNCHANGED <<state, saved, restarts, plan, finder, answer>>

\* A retired group answers with what it had before its fence.
Tell(n, id) ==
    LET s == state[n]
        isAnswered(g) == s.retired[g] # 0 \/ (HasVoid(g, id) /\ Applied(s, g) >= VoidIndex(g, id))
        asked == IF Is("root-only-is-asked") THEN {Root} ELSE s.asked[id]
        ended == IF Is("retired-group-is-not-asked") THEN {} ELSE {g \in Groups : s.retired[g] # 0}
    IN /\ finder[id] = "seeking" /\ answer[id] = ""
       /\ isAnswered(Root) /\ \A g \in asked : isAnswered(g)
       /\ answer' = [answer EXCEPT ![id] = IF \E g \in asked \cup ended : IsCommitted(s, g, id) THEN "yes" ELSE "no"]
       /\ UNCHANGED <<log, state, saved, restarts, plan, finder>>

(* Checkpoints and crashes. What a node executed or sought is lost with it;  *)
(* what it has proposed is not.                                              *)

Checkpoint(n) ==
    /\ restarts < MaxRestarts
    /\ saved[n] # state[n]
    /\ saved' = [saved EXCEPT ![n] = state[n]]
    /\ UNCHANGED <<log, state, restarts, plan, finder, answer>>

Restart(n) ==
    /\ restarts < MaxRestarts
    /\ restarts' = restarts + 1
    /\ state' = [state EXCEPT ![n] = IF Is("checkpoint-without-parts") THEN [saved[n] EXCEPT !.parts = {}] ELSE saved[n]]
    /\ plan' = [id \in Ids |-> IF plan[id].n = n /\ plan[id].phase = "planned"
                               THEN [plan[id] EXCEPT !.phase = "lost"] ELSE plan[id]]
    /\ UNCHANGED <<log, saved, finder, answer>>

-----------------------------------------------------------------------------

Init ==
    /\ log = [g \in Groups |-> <<>>]
    /\ state = [n \in Nodes |-> InitState]
    /\ saved = [n \in Nodes |-> InitState]
    /\ restarts = 0
    /\ plan = [id \in Ids |-> NoPlan]
    /\ finder = [id \in Ids |-> "none"]
    /\ answer = [id \in Ids |-> ""]

Next ==
    \/ \E n \in Nodes : Apply(n) \/ Checkpoint(n) \/ Restart(n)
    \/ \E n \in Nodes, id \in Ids : Plan(n, id) \/ Tell(n, id)
    \/ \E id \in Ids : CommitData(id) \/ Decide(id) \/ CommitDecisionAgain(id) \/ SeekFirst(id)
    \/ \E id \in Ids, g \in Groups : CommitPrepare(id, g) \/ SeekNext(id, g)
    \/ FinishSome

Fairness == WF_vars(FinishSome) /\ \A n \in Nodes : WF_vars(Apply(n))

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ Fairness

-----------------------------------------------------------------------------
(* Properties.                                                               *)

IsCommittedAnywhere(id) == \E n \in Nodes, g \in Groups : IsCommitted(state[n], g, id)

\* 1a. What an entry meets depends on its own log alone: it has the same result on every node that applied it, however far
\*     that node is in other logs. (Behind the fence of a retired group nothing is state.)
SameResults ==
    \A n, m \in Nodes : \A g \in Groups :
        \A i \in 1..Applied(state[n], g) :
            i <= Applied(state[m], g) => state[n].results[g][i] = state[m].results[g][i]

\* 1b. State is a function of the applied vector.
SameVector(s, u) ==
    /\ s.retired = u.retired
    /\ \A g \in Groups : s.retired[g] # 0 \/ Applied(s, g) = Applied(u, g)
SameState ==
    \A n, m \in Nodes :
        SameVector(state[n], state[m]) =>
            /\ state[n].rows = state[m].rows /\ state[n].defs = state[m].defs
            /\ state[n].version = state[m].version /\ state[n].parts = state[m].parts
            /\ state[n].groups = state[m].groups /\ state[n].asked = state[m].asked
            /\ state[n].done = state[m].done
Agreement == SameResults /\ SameState

\* 2. On no node, at no moment, is a part of a transaction visible without the others.
Atomicity ==
    \A n \in Nodes : \A id \in Ids :
        {d[2] : d \in {e \in state[n].done : e[1] = id}} \in {{}, DOMAIN plan[id].parts}

\* 3. A transaction takes effect at most once; what its client was told is and remains true.
Once ==
    /\ \A n \in Nodes : state[n].twice = {}
    /\ \A id \in Ids :
        /\ answer[id] = "no" => ~IsCommittedAnywhere(id)
        /\ answer[id] = "yes" =>
            \A n \in Nodes :
                (\A g \in Groups : state[n].retired[g] # 0 \/ Applied(state[n], g) = Len(log[g]))
                    => \E g \in Groups : IsCommitted(state[n], g, id)
        /\ \A n, m \in Nodes, g, h \in Groups :
            IsCommitted(state[n], g, id) /\ IsCommitted(state[m], h, id) => g = h

\* 4. Nothing is written past a change of a table; what was committed is there on every node that applied it, and no more.
Times(s, kind, t, r) ==
    Cardinality({id \in Ids : (\E d \in s.done : d[1] = id) /\ [k |-> kind, t |-> t, r |-> r] \in Range(Txns[id].ops)})
RowsKept ==
    /\ \A n \in Nodes : state[n].stale = {}
    /\ \A n \in Nodes, t \in Tables, r \in RowSet :
        state[n].rows[t][r] + Times(state[n], "del", t, r)
            = (IF r \in InitRows[t] THEN 1 ELSE 0) + Times(state[n], "ins", t, r)
    /\ \A n, m \in Nodes, g \in Groups : \A i \in 1..Applied(state[n], g) :
        i <= Applied(state[m], g) /\ state[n].results[g][i] = "ok" => \E d \in state[m].done : d[1] = log[g][i].id

\* 5. Granted prepares do not clash.
LocksExclude ==
    \A n \in Nodes : \A p, q \in state[n].parts :
        p.g = q.g /\ p.id # q.id => ~Clash(LocksOfPart(plan[p.id].parts[p.g]), LocksOfPart(plan[q.id].parts[q.g]))

\* 6. No node waits in a circle: while something is to be applied, something can be.
NoCircle ==
    \A n \in Nodes :
        (\E g \in Groups : state[n].retired[g] = 0 /\ Applied(state[n], g) < Len(log[g]))
            => \E g \in Groups : CanApply(state[n], g)

\* 7. Of two transactions that were committed, and read what the other one wrote, one saw the other.
Reads(id) == {op.t : op \in {o \in Range(Txns[id].ops) : o.k = "read"}}
Writes(id) == {op.t : op \in {o \in Range(Txns[id].ops) : IsRowOp(o)}}
Serializable ==
    \A x, y \in Ids :
        /\ x # y /\ IsCommittedAnywhere(x) /\ IsCommittedAnywhere(y)
        /\ Reads(x) \cap Writes(y) # {} /\ Reads(y) \cap Writes(x) # {}
        => x \in plan[y].saw \/ y \in plan[x].saw

\* 8. Of transactions that take their groups in turn, and clash with nothing else, one is not rejected for a lock.
IsRejected(id) ==
    \E n \in Nodes, g \in Groups : \E i \in 1..Applied(state[n], g) :
        log[g][i].id = id /\ state[n].results[g][i] = "locked"
SomeoneWins == InTurn = {} \/ \E id \in InTurn : ~IsRejected(id)

\* 9. No lock stays, whoever dies.
Released == \A n \in Nodes : <>[](state[n].parts = {})

=============================================================================
