"""The conditions of a ModelDeployment and their reasons: what `status.conditions` may say.

All are positive (True is good) except `Reconciling` and `Stalled`, kstatus's two abnormal-true ones, which are present
only while true. `UpToDate` is what CI and GitOps wait for.
"""

from enum import StrEnum


class ConditionType(StrEnum):
    """One aspect of a ModelDeployment that is true, false or not yet known."""

    ACCEPTED = "Accepted"
    ARTIFACT_VERIFIED = "ArtifactVerified"
    READY = "Ready"
    UP_TO_DATE = "UpToDate"
    KNOBS_APPLIED = "KnobsApplied"
    ROUTED = "Routed"
    ROLLBACK_READY = "RollbackReady"
    SANDBOXED = "Sandboxed"
    PADDING_PROVEN = "PaddingProven"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class Reason(StrEnum):
    """Why a condition has its status. Pods add their own, more precise ones through `podconfig.Termination.reason`."""

    # Accepted
    ACCEPTED = "Accepted"
    INVALID_SPEC = "InvalidSpec"
    UNKNOWN_DIMENSION = "UnknownDimension"
    BUCKET_OUT_OF_RANGE = "BucketOutOfRange"
    NOT_BATCHABLE = "NotBatchable"
    WILL_NOT_FIT = "WillNotFit"
    LENGTH_OUT_OF_RANGE = "LengthOutOfRange"
    POLICY_MISMATCH = "PolicyMismatch"
    PRECISION_REFUSED = "PrecisionRefused"
    SANDBOX_UNAVAILABLE = "SandboxUnavailable"
    SIGNATURE_CHANGED = "SignatureChanged"
    REFUSED = "Refused"
    NAME_CONFLICT = "NameConflict"
    NAMESPACE_FULL = "NamespaceFull"
    # ArtifactVerified
    VERIFIED = "Verified"
    PREPARING = "Preparing"
    NOT_FOUND = "NotFound"
    FORBIDDEN = "Forbidden"
    UNREACHABLE = "Unreachable"
    TOO_LARGE = "TooLarge"
    DIGEST_MISMATCH = "DigestMismatch"
    UNSAFE_ARTIFACT = "UnsafeArtifact"
    INCOMPATIBLE_VERSION = "IncompatibleVersion"
    SIGNATURE_MISSING = "SignatureMissing"
    SIGNATURE_INVALID = "SignatureInvalid"
    UNKNOWN_PROGRAM = "UnknownProgram"
    SHAPE_MISMATCH = "ShapeMismatch"
    # Ready
    SERVING = "Serving"
    ANSWERS_DIFFER = "AnswersDiffer"
    PARITY_FAILED = "ParityFailed"
    WARMING = "Warming"
    PODS_UNSCHEDULABLE = "PodsUnschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    CRASH_LOOP = "CrashLoop"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105
    STARTING = "Starting"
    # UpToDate
    AS_SPECIFIED = "AsSpecified"
    RUNTIME_OUTDATED = "RuntimeOutdated"
    ROLLING_OUT = "RollingOut"
    ROLLING_BACK = "RollingBack"
    CANARY_NOT_READY = "CanaryNotReady"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    # KnobsApplied
    APPLIED = "Applied"
    WAITING = "Waiting"
    CLAMPED = "Clamped"
    KNOBS_REJECTED = "KnobsRejected"
    # Routed
    CONFIRMED = "Confirmed"
    ROUTER_NOT_READY = "RouterNotReady"
    WEIGHT_PENDING = "WeightPending"
    ROUTER_REJECTED = "RouterRejected"
    NO_READY_REVISION = "NoReadyRevision"
    # RollbackReady
    WARM = "Warm"
    NO_PREVIOUS = "NoPrevious"
    EXPIRED = "Expired"
    PREVIOUS_NOT_READY = "PreviousNotReady"
    # Sandboxed
    CONFINED = "Confined"
    SANDBOX_INCOMPLETE = "SandboxIncomplete"
    NOT_REPORTED = "NotReported"
    # PaddingProven
    PROVEN = "Proven"
    TRUSTED = "Trusted"
    NOTHING_TO_PAD = "NothingToPad"
    NOT_PADDED = "NotPadded"
    PADDING_CHANGES_ANSWERS = "PaddingChangesAnswers"
