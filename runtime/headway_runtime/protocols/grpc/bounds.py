"""What one client may cost a pod: HTTP/2 offers many ways to make a server work without ever asking it anything."""

from dataclasses import dataclass

MAX_STREAMS = 256  # calls at the same time on one connection: h2 walks over all of them for every new one
MAX_HEADER_LIST = 64 * 2**10  # bytes of a call's headers, uncompressed (as over HTTP/1.1)
MAX_FRAME = 256 * 2**10  # bytes: larger tensors come in fewer pieces than with the usual 16 KiB
MAX_SILENT = (
    2 * MAX_FRAME
)  # bytes that h2 may keep before they are a frame; it looks at a frame's length at its end only
STREAM_WINDOW = 2**20  # bytes that a client may send ahead in one call ...
CONNECTION_WINDOW = 16 * 2**20  # ... and in all calls of its connection
STEP = 4 * 2**10  # bytes that are read at once: a frame may have nine, and a message of a stream five ...
TURN_SECONDS = 0.01  # ... and for how long, before other clients have their turn
LARGE = 2**17  # bytes of a message: longer ones are read in a thread
MAX_STRUCTURED = 8 * 2**20  # bytes of a message beside raw_input_contents: the parser cannot be interrupted
MAX_FIELDS = 1000  # of a message, at its top
MESSAGE_SECONDS = 60.0  # from the first byte of a message to its last, where no deadline is nearer
MAX_MESSAGE = 64 * 2**20  # bytes of one message, until the knobs are known
MAX_HELD = 256 * 2**20  # bytes of all messages that have not arrived in full; at least those of one that is allowed
HANDSHAKE_SECONDS = 10.0  # from the connection to its first call
FAREWELL_SECONDS = 0.5  # in which calls may still come after a client has heard that it should begin no more
STALLED_SECONDS = 30.0  # an answer of which the client takes nothing for so long is given up, with its connection
MAX_UNSENT = 8 * 2**20  # bytes of answers in a connection's buffer, above which its client is not read any more


@dataclass(slots=True)
class Allowance:
    """A bucket of tokens: `burst` at once, and `rate` more each second. A use that finds it empty is an abuse."""

    burst: float
    rate: float
    left: float
    at: float = 0.0  # time.monotonic() of the last use

    def use(self, now: float) -> bool:
        """Take one; False when there is none."""
        self.left = min(self.burst, self.left + (now - self.at) * self.rate) - 1
        self.at = now
        return self.left >= 0


def idle_frames(now: float) -> Allowance:
    """Frames that carry nothing: pings, settings, priorities, empty data. Honest clients send a few each second."""
    return Allowance(1000, 100, 1000, now)


def windows(now: float) -> Allowance:
    """Windows that are opened wider: a client that reads large answers does so for each part of one."""
    return Allowance(10_000, 5000, 10_000, now)


def cancellations(now: float) -> Allowance:
    """Calls that are begun and taken back (CVE-2023-44487). A router brings those of many clients together."""
    return Allowance(2000, 500, 2000, now)
