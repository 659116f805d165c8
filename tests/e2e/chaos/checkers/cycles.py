"""Dependency graphs of transactions and the cycles in them.

Edges carry a kind: "ww" (overwrites), "wr" (reads from), "rw" (anti-dependency: the target overwrote
what the source read) and "order" (a session's own order, or real time). Order edges may run over
helper nodes, so that n transactions need about n of them.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable

Node = Hashable


@dataclasses.dataclass(frozen=True)
class Edge:
    """One dependency; `why` says it in words."""

    source: Node
    target: Node
    kind: str
    why: str = ""


class Graph:
    """A directed multigraph."""

    def __init__(self, edges: Iterable[Edge] = ()) -> None:
        self.edges: dict[Node, list[Edge]] = defaultdict(list)
        for edge in edges:
            self.add(edge)

    def add(self, edge: Edge) -> None:
        """Add an edge; loops are left out."""
        if edge.source != edge.target:
            self.edges[edge.source].append(edge)

    def only(self, *kinds: str) -> Graph:
        """Return the part of the graph with these kinds of edges."""
        return Graph(e for edges in self.edges.values() for e in edges if e.kind in kinds)

    def no_two_rw_in_a_row(self) -> Graph:
        """Return a graph over (node, came by rw) whose cycles never have two rw edges in a row."""
        result = Graph()
        for edges in self.edges.values():
            for edge in edges:
                after = edge.kind == "rw"
                for before in (False,) if after else (False, True):
                    result.add(
                        Edge((edge.source, before), (edge.target, after), edge.kind, edge.why)
                    )
        return result

    def components(self) -> list[list[Node]]:
        """Return the strongly connected components of more than one node (Tarjan, iterative)."""
        index: dict[Node, int] = {}
        low: dict[Node, int] = {}
        path: list[Node] = []
        on_path: set[Node] = set()
        found: list[list[Node]] = []
        for root in list(self.edges):
            if root in index:
                continue
            index[root] = low[root] = len(index)
            path.append(root)
            on_path.add(root)
            work = [(root, iter(self.edges.get(root, ())))]
            while work:
                node, rest = work[-1]
                edge = next(rest, None)
                if edge is None:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[node])
                    if low[node] == index[node]:
                        cut = path.index(node) if path[-1] != node else len(path) - 1
                        component = path[cut:]
                        del path[cut:]
                        on_path.difference_update(component)
                        if len(component) > 1:
                            found.append(component)
                elif edge.target not in index:
                    index[edge.target] = low[edge.target] = len(index)
                    path.append(edge.target)
                    on_path.add(edge.target)
                    work.append((edge.target, iter(self.edges.get(edge.target, ()))))
                elif edge.target in on_path:
                    low[node] = min(low[node], index[edge.target])
        return found

    def shortest_cycle(
        self,
        component: list[Node],
        wanted: Callable[[Edge], bool] = lambda _: True,
        back: Callable[[Edge], bool] = lambda _: True,
    ) -> list[Edge]:
        """Return a short cycle inside a component.

        Args:
            component: one of `components`.
            wanted: the cycle must begin with an edge that fulfils this; empty when there is none.
            back: the other edges must fulfil this.

        """
        inside = set(component)
        best: list[Edge] = []
        starts = [
            edge
            for node in component
            for edge in self.edges.get(node, ())
            if edge.target in inside and wanted(edge)
        ]
        for start in starts[:200]:
            rest = self._path(start.target, start.source, inside, back)
            if rest is not None and (not best or len(rest) + 1 < len(best)):
                best = [start, *rest]
        return best

    def _path(
        self, source: Node, target: Node, inside: set[Node], allowed: Callable[[Edge], bool]
    ) -> list[Edge] | None:
        came: dict[Node, Edge | None] = {source: None}
        queue = deque([source])
        while queue:
            node = queue.popleft()
            if node == target:
                steps: list[Edge] = []
                edge = came[node]
                while edge is not None:
                    steps.append(edge)
                    edge = came[edge.source]
                return steps[::-1]
            for edge in self.edges.get(node, ()):
                if edge.target in inside and edge.target not in came and allowed(edge):
                    came[edge.target] = edge
                    queue.append(edge.target)
        return None
