------------------------------ MODULE Scenarios ------------------------------
(* What is executed in the models: small sets of transactions, each chosen   *)
(* to meet one group of rules. A .cfg file picks one by replacing constants. *)
EXTENDS Groups, TLC

Symmetry == Permutations(Nodes)

R1 == [a |-> 1, b |-> 1]
R2 == [a |-> 2, b |-> 2]
R21 == [a |-> 2, b |-> 1]
Ins(t, r) == [k |-> "ins", t |-> t, r |-> r]
Del(t, r) == [k |-> "del", t |-> t, r |-> r]
Read(t) == [k |-> "read", t |-> t]
Place(t, to) == [k |-> "place", t |-> t, to |-> to]
Retire(g) == [k |-> "retire", g |-> g]
Txn(ops) == [ops |-> ops, after |-> 0]
After(ops) == [ops |-> ops, after |-> 1]

None == {}
Groups2 == 1..2
Groups3 == 1..3
Group2 == {2}

AB == {"A", "B"}
OnlyA == {"A"}
X == {"x"}
Y == {"y"}
E == {"e"}
XY == {"x", "y"}
XE == {"x", "e"}
NoRows == [t \in AB |-> {}]
Rows12 == {R1, R2}
Rows123 == {R1, R2, R21}

\* A transaction over two groups, and single entries that touch the same row.
Commit_Places == [A |-> <<1>>, B |-> <<2>>]
Commit_Rows == [A |-> {R1}, B |-> {R2}]
Commit_Txns ==
    [x |-> Txn(<<Del("A", R1), Del("B", R2)>>),
     e |-> Txn(<<Del("B", R2)>>)]

\* The same as single entries and with parts that can be executed twice.
Copies_Txns ==
    [x |-> Txn(<<Ins("A", R1), Ins("B", R1)>>)]
CopiesOne_Txns ==
    [e |-> Txn(<<Ins("B", R1)>>),
     f |-> Txn(<<Ins("B", R2)>>)]

\* Two over the same groups whose parts clash.
Pair_Txns ==
    [x |-> Txn(<<Ins("A", R1), Ins("B", R1)>>),
     y |-> Txn(<<Ins("A", R2), Ins("B", R1)>>)]

\* Two over the same groups, with different coordinators; one of them has no part in the root.
Two_Places == [A |-> <<1>>, B |-> <<2>>, C |-> <<3>>]
Two_Rows == [A |-> {}, B |-> {}, C |-> {R1}]
ABC == {"A", "B", "C"}
Two_Txns ==
    [x |-> Txn(<<Ins("A", R1), Ins("B", R1)>>),
     y |-> Txn(<<Ins("B", R1), Ins("C", R2)>>)]

\* Two whose parts meet in two groups.
Turns_Txns ==
    [x |-> Txn(<<Ins("B", R1), Ins("C", R2)>>),
     y |-> Txn(<<Ins("A", R1), Ins("B", R1), Ins("C", R2)>>)]

\* A unique value that a transaction over two groups frees is taken by a single entry.
Keys_Rows == [A |-> {}, B |-> {R1}]
Keys_Txns ==
    [x |-> Txn(<<Ins("A", R1), Del("B", R1)>>),
     e |-> Txn(<<Ins("B", R21)>>)]

\* A table without a key: one row is deleted twice, and inserted between.
Bag_Txns ==
    [x |-> Txn(<<Ins("A", R1), Del("B", R1)>>),
     e |-> Txn(<<Ins("B", R1)>>),
     f |-> Txn(<<Del("B", R1)>>)]

\* A table moves; entries planned before and after.
Flip_Places == [A |-> <<2>>]
Flip_Rows == [A |-> {}]
Flip_Txns ==
    [d |-> Txn(<<Place("A", <<3>>)>>),
     e |-> Txn(<<Ins("A", R1)>>),
     f |-> After(<<Ins("A", R21)>>)]

\* A table moves away and back.
FlipBack_Txns ==
    [d |-> Txn(<<Place("A", <<3>>)>>),
     f |-> After(<<Place("A", <<2>>)>>),
     e |-> Txn(<<Ins("A", R1)>>)]

\* A table without a key is dropped while a transaction over two groups writes it.
Drop_Txns ==
    [d |-> Txn(<<Place("B", <<>>)>>),
     x |-> Txn(<<Ins("A", R1), Ins("B", R1)>>)]

\* A table in two groups is put into one (SET GROUPS), with a transaction over both.
Reshard_Places == [A |-> <<2, 3>>]
Reshard_Txns ==
    [d |-> Txn(<<Place("A", <<2>>)>>),
     x |-> Txn(<<Ins("A", R1), Ins("A", R2)>>)]

\* A table is created and written.
Create_Places == [A |-> <<>>]
Create_Txns ==
    [d |-> Txn(<<Place("A", <<2>>)>>),
     e |-> After(<<Ins("A", R1)>>)]

\* A serializable transaction reads a table that a single entry writes.
Read_Txns ==
    [x |-> Txn(<<Read("B"), Ins("A", R1)>>),
     e |-> Txn(<<Ins("B", R1)>>)]

\* Two serializable ones read what the other one writes.
Skew_Txns ==
    [x |-> Txn(<<Read("B"), Ins("A", R1)>>),
     y |-> Txn(<<Read("A"), Ins("B", R1)>>)]

\* A group ends: its last table moves, while a transaction that it coordinates is under way.
Retire_Places == [A |-> <<2>>, B |-> <<3>>]
Retire_Txns ==
    [d |-> Txn(<<Place("A", <<1>>), Retire(2)>>),
     x |-> Txn(<<Ins("A", R1), Ins("B", R1)>>)]
\* The same with a transaction that has a prepared part in that group.
RetirePart_Places == [A |-> <<2>>, B |-> <<1>>]
RetireOne_Txns ==
    [d |-> Txn(<<Place("A", <<1>>), Retire(2)>>),
     e |-> Txn(<<Ins("A", R1)>>)]
==============================================================================
