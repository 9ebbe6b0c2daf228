"""Rights as sets: what roles grant, and what an operator's log (`HEADWAY_RBAC_LOG`) says was asked for."""

from dataclasses import dataclass

from tests.charts.chart import Object


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on a resource (with its subresource: `modeldeployments/status`) of an API group."""

    group: str
    resource: str
    verb: str


def granted(role: Object) -> set[Right]:
    """What a Role or a ClusterRole grants. Raises ValueError for a wildcard: it grants what nobody asked for."""
    rights = {
        Right(group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    if wild := [right for right in rights if "*" in (right.group, right.resource, right.verb)]:
        raise ValueError(f"wildcards in {role['metadata']['name']}: {wild}")
    return rights


def asked(log: str) -> set[Right]:
    """What an operator's log says: lines of `<group>/<resource> <verb>`."""
    rights = set()
    for line in log.splitlines():
        path, verb = line.split()
        group, _, resource = path.partition("/")
        rights.add(Right(group, resource, verb))
    return rights
