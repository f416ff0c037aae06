"""The judge on right, wrong, dishonest and hostile kernel files, each from file to verdict."""

import pytest
from kernels import BF16, BF16_CUT, TF32, TF32_CUT, gemm, in_parts, rounded

from gemmlab.directives.directive import parse
from gemmlab.submission import judging
from gemmlab.submission.judging import Options


def in_this_process(task, request, limits):
    """What process.run does, without the process: for kernels that are known to end."""
    answers = []
    try:
        for answer in getattr(tasks, task)(request):
            answers.append(json.loads(json.dumps(answer)))
    except Exception as error:
        return process.Ended(answers, status_of(error), str(error))
    return process.Ended(answers)


@pytest.fixture
def judge(tmp_path, monkeypatch):
    """Judge a text as a file, without a GPU; `apart`, in processes as a user does."""

    def run(text, *words, suffix=".cu", apart=False, **options):
        if not apart:
            monkeypatch.setattr(process, "run", in_this_process)
        file = tmp_path / f"kernel{suffix}"
        file.write_text(text)
        options = Options(**{"gpu": False, "seed": 1, **options})
        return judging.judge_file(file, parse(list(words)), options)

    return run


def test_a_right_kernel_passes_with_class_counters_and_advice(judge):
    found = judge(gemm())
    assert found.verdict == "pass" and found.precision == "ieee", found.steps[-1].message
    assert [step.name for step in found.steps] == ["directive", "compile", "checks", "emulator"]
    requests = found.counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]
    assert requests == 2 * 64 * 256 * 256 // 32
    assert found.advice[0].startswith("no reuse: ")
    assert found.score is None


PRECISION = {
    "TF32": (rounded(TF32), "tf32"),
    "TF32, cut off": (rounded(TF32_CUT), "tf32"),
    "bfloat16": (rounded(BF16), "bf16"),
    "bfloat16, cut off": (rounded(BF16_CUT), "bf16"),
    "bfloat16 in two parts": (in_parts("0xffff0000"), "x3"),
}


@pytest.mark.parametrize("name", PRECISION)
def test_a_cheaper_class_does_not_pass_as_float32(judge, name):
    text, wanted = PRECISION[name]
    found = judge(text)
    assert (found.verdict, found.precision) == ("low precision", wanted)
    assert f"this is {wanted}" in found.steps[-1].message
    assert judge(text, f"precision={wanted}").verdict == "pass"
