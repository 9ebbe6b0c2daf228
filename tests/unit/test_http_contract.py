"""What `protocols.http.connection` uses of uvicorn's own protocol, which is no public interface of it.

When one of these fails after an upgrade of uvicorn, read the difference of `httptools_impl.py`, and then change both.
"""

import ast
import inspect
from importlib.metadata import version

import uvicorn
from headway_runtime.protocols.http.connection import Connection
from headway_runtime.protocols.http.turns import Turn
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

TREE = ast.parse(inspect.getsource(httptools_impl))
CLASSES = {node.name: node for node in ast.walk(TREE) if isinstance(node, ast.ClassDef)}


def attributes(node: ast.AST, owner: str) -> set[str]:
    """Every `X` of `self.<owner>.X` in a class."""
    return {
        found.attr
        for found in ast.walk(node)
        if isinstance(found, ast.Attribute) and isinstance(found.value, ast.Attribute) and found.value.attr == owner
    }


def test_it_is_the_version_that_was_read() -> None:
    assert version("uvicorn").startswith("0.54.")


def test_a_turn_has_what_the_protocol_uses_of_a_cycle() -> None:
    used = attributes(CLASSES["HttpToolsProtocol"], "cycle")
    read_body = {"body", "more_body"}  # in on_body and on_message_complete, which a turn's body never enters
    assert used == {"disconnected", "keep_alive", "message_event", "response_complete"} | read_body
    for name in used - read_body:
        assert name in Turn.__slots__ or hasattr(Turn, name)


def test_the_protocol_has_the_methods_that_are_known() -> None:
    methods = {
        name for name, _ in inspect.getmembers(HttpToolsProtocol, inspect.isfunction) if name in vars(HttpToolsProtocol)
    }
    assert methods == {
        *("__init__", "connection_made", "connection_lost", "eof_received", "data_received", "pause_writing"),
        *("resume_writing", "shutdown", "on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body"),
        *("on_message_complete", "on_response_complete", "send_400_response", "timeout_keep_alive_handler"),
        *("handle_websocket_upgrade", "_get_upgrade", "_should_upgrade", "_should_upgrade_to_ws"),
        *("_unset_keepalive_if_required", "_unsupported_upgrade_warning", "_start_asgi_task"),
    }
    for name in ("_start_asgi_task", "on_response_complete", "on_headers_complete", "on_body"):
        assert name in vars(Connection), "what is overridden is called by that name"


def test_the_protocol_keeps_its_state_where_it_is_looked_for() -> None:
    source = inspect.getsource(HttpToolsProtocol)
    for line in (
        "self.pipeline: deque[tuple[RequestResponseCycle, ASGI3Application]] = deque()",
        "self.parser = httptools.HttpRequestParser(self)",
        "self.pipeline.appendleft((self.cycle, app))",
        "self._start_asgi_task(self.cycle, app)",
        "if existing_cycle is None or existing_cycle.response_complete:",
        '"headers": self.headers,',
        "on_response=self.on_response_complete,",
        "self.flow = FlowControl(transport)",
    ):
        assert line in source, line
    assert {"pause_reading", "resume_reading", "pause_writing", "resume_writing"} <= set(vars(FlowControl))
    assert {"read_paused", "write_paused"} <= attributes_set(FlowControl)
    cycle = inspect.getsource(RequestResponseCycle)
    assert "self.on_response()" in cycle
    assert "if self.disconnected:" in cycle


def attributes_set(kind: type) -> set[str]:
    """Names that `__init__` gives to `self`."""
    nodes = ast.walk(ast.parse(inspect.getsource(kind)))
    return {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}


def test_the_server_makes_a_connection_as_we_do() -> None:
    source = inspect.getsource(uvicorn.Server.startup)
    for argument in ("config=config", "server_state=self.server_state", "app_state=self.lifespan.state", "_loop=_loop"):
        assert argument in source
    assert "self.server_state.default_headers = " in inspect.getsource(uvicorn.Server.on_tick), "a new list each time"
