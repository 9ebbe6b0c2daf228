"""TorchServe: the Java front, one Python worker, a model archive with a batch size and a delay."""

import json
import os
import subprocess
import sys
from pathlib import Path

from served import config


def main() -> None:
    settings, here = config(), Path(__file__).parent
    folder = Path(settings["folder"])
    store = folder / "store"
    store.mkdir()
    (folder / "peer.json").write_text(json.dumps(settings))
    (folder / "model-config.yaml").write_text(
        f"minWorkers: 1\nmaxWorkers: 1\nbatchSize: {settings['max_batch']}\n"
        f"maxBatchDelay: {round(settings['max_wait'] * 1000)}\nresponseTimeout: 60\n"
    )
    (folder / "config.properties").write_text(
        f"inference_address=http://127.0.0.1:{settings['port']}\n"
        f"management_address=http://127.0.0.1:{settings['port'] + 1}\n"
        f"metrics_address=http://127.0.0.1:{settings['port'] + 2}\n"
        f"grpc_inference_port={settings['port'] + 3}\ngrpc_management_port={settings['port'] + 4}\n"
        f"disable_token_authorization=true\nenable_envvars_config=false\njob_queue_size=1000\n"
        f"disable_system_metrics=true\nmodel_store={store}\nload_models=mlp.mar\n"
        f"vmargs={settings.get('vmargs', '-Xmx512m')}\n"
    )
    (folder / "log4j2.xml").write_text(
        '<Configuration><Appenders><Console name="out"/></Appenders>'
        '<Loggers><Root level="error"><AppenderRef ref="out"/></Root></Loggers></Configuration>'
    )
    tools = Path(sys.executable).parent
    archive = ["--model-name", "mlp", "--version", "1", "--handler", str(here / "torchserve_handler.py")]
    archive += ["--extra-files", f"{here / 'served.py'},{folder / 'peer.json'}"]
    archive += ["--config-file", str(folder / "model-config.yaml"), "--export-path", str(store), "--force"]
    subprocess.run([str(tools / "torch-model-archiver"), *archive], check=True)
    os.environ |= {"LOG_LOCATION": str(folder / "logs"), "METRICS_LOCATION": str(folder / "logs"), "TEMP": str(folder)}
    os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    os.environ.pop("HEADWAY_PEER")
    os.chdir(folder)
    serve = [str(tools / "torchserve"), "--start", "--foreground", "--ncs", "--disable-token-auth"]
    serve += ["--ts-config", str(folder / "config.properties"), "--log-config", str(folder / "log4j2.xml")]
    os.execv(serve[0], serve)


if __name__ == "__main__":
    main()
