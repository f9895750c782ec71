"""The process that has torch: one request a line on stdin, `[job, argument]` as JSON, one answer a line on stdout.

    FBGEMM_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 python -m tests.backends.engines.worker

torch and the libraries in it read the variables that cap their instruction sets once, when they start.
"""

import json
import os
import sys
import warnings

warnings.filterwarnings("ignore")  # torch announces the end of quint8 tensors at every use

import torch  # noqa: E402

from tests.backends.engines import sums, torch_defaults, transposed, value_ops, whole_sums, worst_inputs  # noqa: E402

JOBS = {
    "largest_errors": sums.largest_errors,
    "channel_errors": worst_inputs.channel_errors,
    "whole_sums": whole_sums.largest_differences,
    "transposed": transposed.largest_steps,
    "value_ops": value_ops.largest_steps,
    "prelu_steps": value_ops.prelu_steps,
    "torch_defaults": torch_defaults.all_engines,
    "torch_range_helper": torch_defaults.range_helper,
    "supported_engines": lambda _: list(torch.backends.quantized.supported_engines),
}


def main() -> None:
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints must not look like an answer
    for line in sys.stdin:
        job, argument = json.loads(line)
        answers.write(json.dumps(JOBS[job](argument)) + "\n")


if __name__ == "__main__":
    main()
