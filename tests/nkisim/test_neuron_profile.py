"""neuron-profile where there is none: what programs that read its JSON get here."""

import json
import textwrap

import pytest

from nkisim.runtime.neuron_profile import union

# As a course's harness, which captures a profile, and a search, which reads summaries, do it.
PROGRAM = """
    import json, os, subprocess
    import numpy as np
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl


    def double(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 2)
        return out


    x = np.ones((128, 512), np.float32)
    timed = nki.benchmark(
        warmup=5, iters=20, save_neff_name="a.neff", additional_compile_opt="--disable-dge",
        disable_allocation_opt=True,
    )(double)
    timed(x)
    subprocess.run(["neuron-profile", "capture", "-n", "a.neff", "-s", "a.ntff"], check=True)
    files = os.path.abspath("b.neff"), os.path.abspath("b.ntff")
    run = nki.baremetal(double, save_neff_name=files[0], save_trace_name=files[1])
    assert (run(x) == 2).all()
    named = {"save_neff_name": "file.neff", "save_trace_name": "c.ntff"}
    nki.benchmark(double, warmup=1, iters=10, **named)(x)
    os.rename("file.neff", "c.neff")
    for name in "abc":
        words = f"-n {name}.neff -s {name}.ntff > {name}.json"
        assert not os.system(f"neuron-profile view --output-format summary-json {words}")
    os.system("neuron-explorer view -d . --output-format json --output-file all.json")
    print(timed.benchmark_result.nc_latency.get_latency_percentile(50))
    """


def test_a_summary_and_the_events_under_the_names_that_aws_gives_them(run_python, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    done = run_python("-m", "nkisim", str(path), env={"NEURON_PLATFORM_TARGET_OVERRIDE": "trn1"})
    latency = float(done.stdout.split()[-1])
    read = {n: json.loads((tmp_path / f"{n}.json").read_text()) for n in ("a", "b", "c", "all")}
    assert read["a"] == read["b"] == read["c"]
    found = read["a"][next(iter(read["a"]))]
    assert found["kind"] == "modelled by nkisim, not measured"
    assert found["total_time"] * 1e6 == pytest.approx(latency)
    assert found["hbm_read_bytes"] == found["hbm_write_bytes"] == 128 * 512 * 4
    assert found["dma_transfer_count"] == 2
    assert 0 < found["scalar_engine_active_time_percent"] < found["total_active_time_percent"] < 1
    assert "model_flops" not in found  # of which the model knows nothing
    assert [x["total_time"] for x in read["all"]["summary"]] == [found["total_time"]] * 3
    trace = json.loads((tmp_path / "c.ntff").read_text())["traceEvents"]  # for ui.perfetto.dev
    assert sum(e["ph"] == "X" for e in trace) == len(read["all"]["instruction"]) / 3
    event = next(x for x in read["all"]["instruction"] if x["opcode"] == "load")
    assert set(event) == {"timestamp", "duration", "label", "opcode", "nki_source_location"}
    assert event["label"] == "DMA"
    line = int(event["nki_source_location"].rpartition(":")[2])
    assert "nl.load(x)" in path.read_text().splitlines()[line - 1]


def test_what_is_no_profile(run_python, tmp_path):
    (tmp_path / "file.neff").write_bytes(b"\x7fELF\x00")
    words = ("-m", "nkisim", "neuron-profile")
    done = run_python(*words, "capture", check=False)
    assert done.returncode == 1
    assert "file.neff is none of nkisim's profiles" in done.stderr


@pytest.mark.parametrize(
    ("spans", "covered"),
    [([], 0), ([(0, 2), (1, 3)], 3), ([(5, 6), (0, 1)], 2), ([(0, 9), (2, 3), (8, 10)], 10)],
)
def test_the_time_that_spans_cover(spans, covered):
    assert union(spans) == covered
