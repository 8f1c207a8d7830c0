"""Where the samples of a text experiment come from: how many rows at a time, and which of several servers."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from text_runs import experiment, run

from widen.run import sampling
from widen.run.folder import RunFolder
from widen.run.sampling import Models, rows_that_fit
from widen_recipes import tiny_texts


@pytest.fixture(scope="module")
def place():
    return tiny_texts.folder()


def test_out_of_memory_means_half_the_rows_and_a_sentence(place, tmp_path, monkeypatch):
    rows, said = [], []
    collect = sampling.collect

    def short_of_memory(engine, *arguments, **options):
        rows.append(engine.batch)
        if engine.batch > 2:
            raise torch.OutOfMemoryError
        return collect(engine, *arguments, **options)

    monkeypatch.setattr(sampling, "collect", short_of_memory)
    run(tmp_path, experiment(place), stages=("sample",), rows=8, notice=said.append)
    assert rows == [8, 4, 2]
    assert "continuing with 2 at a time" in said[-1]


def test_models_are_drawn_from_the_servers_that_serve_them_and_others_wait(place, tmp_path, monkeypatch):
    """Two servers of one model and one of another; a third model is served by none."""
    listed = {"http://a": {"one"}, "http://b": {"two"}, "http://c": {"one"}}
    asked = []

    class Server(sampling.LocalEngine):
        def __new__(cls, urls, *, model):
            asked.append((tuple(urls), model))
            return sampling.LocalEngine.load(str(place / "model"), device="cpu", dtype="float32")

    monkeypatch.setattr(sampling, "served", listed.get)
    monkeypatch.setattr(sampling, "ServerEngine", Server)
    said = []
    three = [experiment(place, name=name, model=name) for name in ("one", "two", "three")]
    run(tmp_path, *three, stages=("sample",), servers=tuple(listed), notice=said.append)
    assert asked == [(("http://a", "http://c"), "one"), (("http://b",), "two")]
    assert len(said) == 1
    assert "three: none of the servers serves three" in said[0]


def test_a_server_that_lists_no_models_is_asked_for_the_model_by_its_path(place, monkeypatch):
    monkeypatch.setattr(sampling, "served", lambda url: None)
    engine = Models(device="cpu", servers=("http://a",)).server(experiment(place), RunFolder("nowhere"))
    assert engine.model == str(place / "model")


def test_a_server_is_asked_what_it_serves():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"data": [{"id": "one"}, {"id": "two"}]}).encode() if self.path == "/v1/models" else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert sampling.served(url) == sampling.served(f"{url}/v1/") == {"one", "two"}
        assert sampling.served(f"{url}/elsewhere") is None
        server.shutdown()


def test_rows_on_a_cpu_are_a_fixed_number(place):
    class Model:
        device = torch.device("cpu")

    assert rows_that_fit(Model(), 100) == sampling.ROWS["cpu"]
