"""Every name that two parts must agree on: API group, labels, annotations, ports, paths and object names."""

GROUP = "serving.headway.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "ModelDeployment"
PLURAL = "modeldeployments"
SINGULAR = "modeldeployment"
SHORT_NAME = "md"

PREFIX = "headway.dev"
FIELD_MANAGER = "headway-operator"

# Labels, on every object the operator makes
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "headway"
LABEL_MODEL = f"{PREFIX}/model"  # name of the ModelDeployment
LABEL_REVISION = f"{PREFIX}/revision"  # name of the revision, 8 hexadecimal digits
LABEL_COMPONENT = f"{PREFIX}/component"
COMPONENT_RUNTIME = "runtime"
COMPONENT_ROUTER = "router"

# Annotations
ANNOTATION_DIGEST = f"{PREFIX}/digest"  # on a ControllerRevision: the digest every pod of the revision must find
ANNOTATION_ROLE = f"{PREFIX}/role"  # on a ControllerRevision: Stable, Previous or "", for a restore without status
ANNOTATION_SYNC = f"{PREFIX}/sync"  # on a pod: hash of what it should have mounted; changing it makes the kubelet look
ANNOTATION_REFRESH = f"{PREFIX}/refresh"  # on a ModelDeployment: a new value asks for a new revision of the same spec
ANNOTATION_SIGNATURE = (
    f"{PREFIX}/allow-signature-change"  # on a ModelDeployment: "true" lets a canary differ in its tensors
)

# Ports of a runtime pod and of a router pod; both serve inference on INFERENCE_PORT and read-only facts on ADMIN_PORT
INFERENCE_PORT = 8080
ADMIN_PORT = 8081
GRPC_PORT = 8082  # of a runtime pod: the Open Inference Protocol over gRPC
ENVOY_ADMIN_PORT = 9901  # loopback only
SERVICE_PORT = 80

# Paths in a runtime pod
CONFIG_DIR = "/etc/headway/model"  # the cold ConfigMap
CONFIG_FILE = f"{CONFIG_DIR}/config.json"
DIGEST_FILE = f"{CONFIG_DIR}/digest"
KNOBS_DIR = "/etc/headway/knobs"  # the hot ConfigMap
KNOBS_FILE = f"{KNOBS_DIR}/knobs.json"
CREDENTIALS_DIR = "/etc/headway/credentials"  # the credentials Secret, in the prepare container only
PUBLIC_KEYS_DIR = "/etc/headway/public-keys"  # Secrets with keys of signers, in the prepare container only
BUILDER_KEYS_DIR = "/etc/headway/builder-keys"
MODEL_DIR = "/model"  # the prepared program
TERMINATION_LOG = "/dev/termination-log"

# Keys of the ConfigMaps above
CONFIG_KEY = "config.json"
DIGEST_KEY = "digest"
KNOBS_KEY = "knobs.json"

SIGNATURE_SUFFIX = ".sig"  # an artifact's signature is beside it: <uri>.sig

PREPARE_CONTAINER = "prepare"
SERVE_CONTAINER = "serve"

ROUTER_NAME = "headway-router"
REVISION_HEADER = "x-headway-revision"  # request: stable | canary | <revision>; answer: the revision that answered
NOT_ADMITTED_HEADER = "x-headway-not-admitted"  # answer: no model has seen the request, it may be retried elsewhere
CHECK_HEADER = (
    "x-headway-check"  # request, `router`: a router asks whether it may send; a draining pod then says `degraded`
)
TIMEOUT_HEADER = "x-headway-timeout"  # request: its own deadline, a duration
PRIORITY_HEADER = "x-headway-priority"  # request: low | normal | high

MAX_NAME_LENGTH = 48
MAX_MODELS_PER_NAMESPACE = 200


def revision_object(model: str, revision: str) -> str:
    """Name of the Deployment, ControllerRevision, ConfigMap, headless Service and PodDisruptionBudget of a revision."""
    return f"{model}-{revision}"


def revision_of(name: str) -> str:
    """The revision that an object named by `revision_object` is of. A name stays; a label may be edited by hand."""
    return name.rpartition("-")[2]


def knobs_object(model: str) -> str:
    """Name of the ConfigMap that carries the hot fields to the pods of every revision."""
    return f"{model}-knobs"
