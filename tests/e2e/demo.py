"""`make demo`: tell the story on a real cluster, and print what happened."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.e2e.cluster_access import StoryError
from tests.e2e.platform import SYSTEM_NAMESPACE, Platform, open_platform
from tests.e2e.story import MODEL, Story

NAMESPACE = "headway-demo"
console = Console(highlight=False, soft_wrap=True)


class Narrator:
    """Prints what is being done, what came of it, and how long it took."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.chapters: list[tuple[str, str]] = []

    @contextmanager
    def chapter(self, title: str) -> Iterator[Callable[[str], None]]:
        start = time.monotonic()
        console.print(f"\n[bold]{title}[/bold]  [dim]({start - self.began:.0f} s since the start)[/dim]")
        yield lambda line: console.print(f"  {line}", markup=False)
        self.chapters.append((title, f"{time.monotonic() - start:.1f} s"))


def tell(platform: Platform, narrator: Narrator) -> Story:
    """All chapters; raises StoryError at the first that does not come true."""
    with narrator.chapter("Publish two versions of a model to the object store") as say:
        platform.forget(NAMESPACE)
        platform.namespace(NAMESPACE)
        first, second, hostile = platform.publish(NAMESPACE, say)
    with platform.story(NAMESPACE, first) as story:
        with narrator.chapter("kubectl apply: one ModelDeployment, two replicas, shape buckets") as say:
            deployed = story.deploy()
            say(f"Ready after {deployed.ready_seconds:.1f} s; revision {deployed.stable} serves at {story.url}")
            for one, other, similarity in deployed.similarities:
                say(f"{similarity:5.2f}  {one!r} ~ {other!r}")
        with narrator.chapter("Tune it under traffic: maxWait 2ms -> 5ms, maxBatch -> 8") as say:
            tuned = story.tune(maxWait="5ms", maxBatch=8)
            say(f"every pod confirmed after {tuned.acknowledged_seconds:.2f} s: {_knobs(tuned.effective)}")
            say(f"same pods: {_yes(tuned.pods_before == tuned.pods_after)}; restarts: {tuned.restarts}")
            say(f"{tuned.requests} requests meanwhile, {len(tuned.failures)} failed")
        with narrator.chapter("A canary of a file that would run code when it is loaded") as say:
            refused = story.refuse(hostile)
            say(f"refused after {refused.seconds:.1f} s: {refused.message}")
            say(f"{refused.requests} requests meanwhile, all to {deployed.stable}; {len(refused.failures)} failed")
            _expect(refused.answered_by == {deployed.stable}, f"{', '.join(refused.answered_by)} answered")
        with narrator.chapter("A canary at 10 %") as say:
            canaried = story.canary(second, weight=10, count=2000)
            say(f"candidate {canaried.candidate} warm, with its first weight, after {canaried.ready_seconds:.1f} s")
            say(f"a change of weight alone: confirmed by the router after {canaried.acknowledged_seconds:.2f} s")
            for revision, count in sorted(canaried.split.items()):
                say(f"{revision} answered {count} of {canaried.split.total()} ({count / canaried.split.total():.1%})")
            _expect(abs(canaried.share - 10) <= 2, f"the canary answered {canaried.share:.1f} % instead of 10 ± 2")
        with narrator.chapter("Promote it: the candidate's artifact becomes the artifact") as say:
            promoted = story.promote()
            say(f"{promoted.stable} answers everything after {promoted.seconds:.1f} s")
            kept = promoted.candidate_pods_before <= promoted.pods_after
            say(f"its pods were kept: {_yes(kept)}; restarts: {promoted.restarts}")
            _expect(kept and not promoted.restarts, "a pod of the candidate was replaced or restarted")
        with narrator.chapter("Roll back: git revert, kubectl apply") as say:
            back = story.roll_back(first)
            say(f"the previous version, still warm, answers everything after {back.seconds:.2f} s")
            say(f"UpToDate at this generation after {back.settled_seconds:.1f} s")
        with narrator.chapter("Leave it alone") as say:
            rested = story.rest(SYSTEM_NAMESPACE, seconds=10)
            say(f"the operator wrote {rested.writes_per_minute:.0f} times a minute")
            say(f"and takes {rested.operator_memory_mb:.0f} MB of memory")
    _expect(tuned.pods_before == tuned.pods_after and not tuned.restarts, "a knob restarted or replaced a pod")
    return story


def _knobs(effective: dict[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in effective.items() if not isinstance(v, dict))


def _yes(fact: bool) -> str:
    return "yes" if fact else "NO"


def _expect(fact: bool, otherwise: str) -> None:
    if not fact:
        raise StoryError(otherwise)


def summary(platform: Platform, narrator: Narrator, story: Story) -> None:
    table = Table(title="What happened", title_justify="left", box=None)
    table.add_column("chapter")
    table.add_column("took", justify="right")
    for title, took in narrator.chapters:
        table.add_row(title, took)
    table.add_row("[bold]Whole demo[/bold]", f"[bold]{time.monotonic() - narrator.began:.0f} s[/bold]")
    console.print()
    console.print(table)
    console.print(f"\n[bold]{story.requests} requests, {len(story.failures)} failed.[/bold]")
    console.print("\nLook around:")
    for command in (
        f"{platform.shell_exports()}",
        f"kubectl get md -n {NAMESPACE} -o wide",
        f"kubectl describe md {MODEL} -n {NAMESPACE}",
        f"kubectl get pods,controllerrevisions -n {NAMESPACE}",
        "kubectl explain md.spec.batching",
        "kubectl logs -n headway-system deploy/headway-operator",
    ):
        console.print(f"  {command}", markup=False)
    console.print(f"\nEnd it: {platform.how_to_end}")


def main() -> int:
    narrator = Narrator()
    try:
        with narrator.chapter("A Kubernetes cluster with Headway in it") as say:
            platform = open_platform(say)
            platform.install(say)
        story = tell(platform, narrator)
    except StoryError as error:
        console.print(f"\n[bold red]The demo stopped:[/bold red] {escape(str(error))}")
        return 1
    summary(platform, narrator, story)
    for failure in story.failures[:5]:
        console.print(f"  failed: {failure}", markup=False)
    return 1 if story.failures else 0


if __name__ == "__main__":
    sys.exit(main())
