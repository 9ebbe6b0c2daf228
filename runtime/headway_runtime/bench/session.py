"""A whole measurement: load, search, cost curve, advice, and the advice tried where the server is ours."""

import os

from headway_api.podconfig import Report, Verdict
from headway_api.units import format_duration, parse_duration

from headway_runtime.bench import load
from headway_runtime.bench.advise import Load, Setting, advise, doubtful
from headway_runtime.bench.costs import Costs
from headway_runtime.bench.encode import binary_body, http_requests, json_body
from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.fetch import exchange
from headway_runtime.bench.inputs import TEXT, Maker, Request, find_ranges, read_samples, words_of
from headway_runtime.bench.machine import CLIENT_BUSY, SHARED, machine
from headway_runtime.bench.model import largest_sizes
from headway_runtime.bench.plan import Plan, Say
from headway_runtime.bench.results import Measurement, Results, TargetRate
from headway_runtime.bench.samples import Samples
from headway_runtime.bench.search import RateSearch
from headway_runtime.bench.sizes import default_sizes
from headway_runtime.bench.target import Target

DISTINCT = 512  # different requests, sent in turn
ENOUGH = 300  # requests of a measurement whose 99th percentile is read: three are beyond it
LONGEST_TRIAL = 30.0  # seconds
CONNECTIONS = (1, 16)
SHARES = (1 / 3, 0.8)  # of saturation: a quiet hour and a busy one
LATE = 1e-3  # seconds
PADDED = (Verdict.PROVEN, Verdict.TRUSTED)
TOO_LARGE = b"the model knows 0 to"  # what a pod says of an id beyond a table's end; other servers fail


class Session:
    """Measures one target. Use once."""

    def __init__(self, target: Target, plan: Plan, say: Say) -> None:
        self._target = target
        self._plan = plan
        self._say = say
        report = target.report()
        self._precision = None if report is None else report.precision
        self._costs = None if report is None else Costs.of(report.buckets.costs, target.model.batch)
        self._requests = self._make()
        host = str(target.address)
        self._wire = http_requests(target.model, self._requests, host=host, binary=plan.binary)

    def run(self) -> Results:
        """Everything, in order. Raises BenchError."""
        results, plan = self._results, self._plan
        clients = plan.connections or CONNECTIONS
        self._load("warm-up", connections=max(clients), seconds=min(1.0, plan.seconds))
        for connections in clients:
            results.measurements.append(self._load(f"closed, {connections}", connections=connections))
        saturation = max(each.samples.throughput for each in results.measurements)
        if not saturation:
            raise BenchError(f"no good answer in {plan.seconds:g} s: {results.measurements[-1].to_dict()['errors']}")
        for rate in plan.rates or tuple(share * saturation for share in SHARES):
            results.measurements.append(self._load(f"open, {rate / saturation:.0%} of most", rate=rate))
        if plan.latency_target is not None:
            results.at_target = self._search(plan.latency_target, saturation)
        self._advise(saturation)
        self._warn()
        return results

    def _make(self) -> list[Request]:
        """Requests that the model takes, and the beginning of the results that says which."""
        plan, model, ranges, sizes = self._plan, self._target.model, dict(self._plan.ranges), {}
        if plan.samples is not None:
            requests = read_samples(plan.samples, model)
        else:
            known = self._costs.buckets() if self._costs else {}
            words = [words_of(tensor) for tensor in model.inputs if tensor.datatype == "BYTES" and not tensor.images]
            unknown = plan.sizes.keys() - {*model.dimensions, *words}
            if unknown:
                have = ", ".join([*model.dimensions, *words]) or "none"
                raise BenchError(f"--sizes {min(unknown)}: the model's dimensions are {have}")
            sizes = {
                **dict.fromkeys(words, TEXT),
                **default_sizes(largest_sizes(model, known), model.batch),
                **plan.sizes,
            }
            maker = find_ranges(Maker(model, sizes, ranges), self._works)
            ranges, requests = dict(maker.ranges), maker.make(DISTINCT, plan.seed)
        self._results = Results(
            model=model.name,
            url=self._target.url,
            sizes={name: str(size) for name, size in sizes.items()},
            ranges=ranges,
            binary=plan.binary,
            machine=machine(),
            precision=self._precision,
            costs=self._costs,
            warnings=list(self._target.warnings),
        )
        status, answer = self._ask(requests[0])
        if status != 200:
            raise BenchError(f"the first request is answered {status}: {answer[:300].decode(errors='replace')}")
        return requests

    def _works(self, request: Request) -> bool:
        status, answer = self._ask(request)
        said = f"{status} {answer[:300].decode(errors='replace')}"
        if status == 400 and TOO_LARGE not in answer:
            raise BenchError(f"the model refuses requests of {_described(request)}: {said}; give --sizes or --samples")
        if status in (404, 429, 503):
            raise BenchError(f"the model does not answer: {said}")
        return status == 200

    def _ask(self, request: Request) -> tuple[int, bytes]:
        body = (binary_body if self._plan.binary else json_body)(self._target.model, request)
        url = f"{self._target.url}/v2/models/{self._target.model.name}/infer"
        return exchange(url, "POST", body.content, dict(body.headers))

    def _load(
        self, label: str, *, rate: float | None = None, connections: int = 256, seconds: float | None = None
    ) -> Measurement:
        seconds = self._plan.seconds if seconds is None else seconds
        self._say(f"{label}: {seconds:.0f} s")
        before = self._target.cpu_seconds()
        address, wire = self._target.address, self._wire
        samples: Samples
        if rate is None:
            samples = load.closed_loop(address, wire, connections=connections, seconds=seconds)
        else:
            samples = load.open_loop(
                address, wire, rate=rate, seconds=seconds, connections=connections, seed=self._plan.seed
            )
        after = self._target.cpu_seconds()
        used = None if before is None or after is None else after - before
        return Measurement(label, connections, rate, samples, samples.summary(), used)

    def _search(self, target: float, saturation: float) -> TargetRate:
        search = RateSearch(guess=saturation / 2)
        tried = []
        while (rate := search.next_rate()) is not None:
            seconds = min(LONGEST_TRIAL, max(self._plan.seconds, ENOUGH / rate))
            found = self._load(f"p99 within {format_duration(target)}? {rate:.4g}/s", rate=rate, seconds=seconds)
            tried.append((rate, found.summary.p99_all))
            search.tell(rate, fits=found.summary.p99_all <= target)
        return TargetRate(target, search.best, tuple(tried))

    def _advise(self, saturation: float) -> None:
        results = self._results
        report = self._target.report()
        if report is None or self._costs is None:
            return
        results.now, results.pod_says = _setting(report), report.recommendation
        rate = max((each.rate for each in results.measurements if each.rate is not None), default=saturation)
        given = {*self._plan.sizes} if self._plan.samples is None else {*self._target.model.dimensions}
        expected = Load(
            rate,
            saturation,
            [request.sizes for request in self._requests],
            self._plan.latency_target,
            made_up={*self._target.model.dimensions} - given,
            unpadded={each.dimension for each in report.padding if each.verdict not in PADDED},
        )
        results.advised = advise(self._costs, expected, results.now)
        results.doubt = doubtful(results.advised.candidates)
        if self._target.knobs_file is not None and self._plan.verify and results.advised.changes_knobs:
            setting = results.advised.setting
            self._target.set_knobs({"maxBatch": setting.max_batch, "maxWait": format_duration(setting.max_wait)})
            for before in results.measurements:
                results.verified.append(
                    self._load(f"{before.label}, as advised", rate=before.rate, connections=before.connections)
                )

    def _warn(self) -> None:
        results = self._results
        busiest = max(results.measurements, key=lambda each: each.client_share)
        if busiest.client_share > CLIENT_BUSY:
            results.warnings.append(
                f"this client used {busiest.client_share:.0%} of a processor ({busiest.label}): its own speed is "
                "measured too; run it on another machine, or with fewer connections"
            )
        late = [each for each in results.measurements if each.client_lag > max(LATE, each.summary.p50 / 10)]
        if late:
            worst = max(late, key=lambda each: each.client_lag)
            results.warnings.append(
                f"this client sent 1 of 100 requests more than {worst.client_lag * 1e3:.2g} ms late ({worst.label}): "
                "its processor was busy, and that time is in the latencies"
            )
        if self._target.pid is not None and (os.cpu_count() or 1) <= 2:
            results.warnings.append(SHARED)


def _described(request: Request) -> str:
    return ", ".join(f"{name} {size}" for name, size in request.sizes.items()) or "its shapes"


def _setting(report: Report) -> Setting:
    effective = report.knobs.effective
    return Setting(int(effective["maxBatch"]), parse_duration(str(effective["maxWait"])))
