"""Why an engine did not come up, or died: from what it said last, in words, with what to do about it."""

from __future__ import annotations

import enum
import re
import signal


class End(enum.StrEnum):
    """How a measuring process ended."""

    OK = "ok"
    NOT_STARTED = "not started"
    OUT_OF_MEMORY = "out of memory"
    DIED = "died"


SERVER = "or measure a running server with --url"
# How it ends, how that shows in an exception or a log, what it means, and the remedy. The first that shows counts.
CAUSES = (
    (
        End.NOT_STARTED,
        r"No module named '(vllm|torch)",
        "vLLM is not installed in this Python",
        f"pip install 'fleetsim[gpu]', {SERVER}",
    ),
    (
        End.NOT_STARTED,
        r"fleetsim needs to record iterations",
        "this release of vLLM is built differently",
        f"install a tested one, {SERVER}",
    ),
    (
        End.NOT_STARTED,
        r"driver on your system is too old|CUDA driver version is insufficient|forward compatibility was attempted",
        "the NVIDIA driver is too old for this build of PyTorch",
        f"update the driver, or install builds for its CUDA version, {SERVER}",
    ),
    (
        End.NOT_STARTED,
        r"Failed to infer device type|No CUDA GPUs are available|no NVIDIA driver on your system|"
        r"No platform detected|Unexpected platform|Device string must not be empty",
        "no GPU was found",
        f"run on a GPU box (nvidia-smi must list one), {SERVER}",
    ),
    (
        End.OUT_OF_MEMORY,
        r"[Oo]ut ?[Oo]f ?[Mm]emory|Cannot allocate memory|\bMemoryError|std::bad_alloc",
        "out of memory",
        "more GPUs per instance (--tp), a smaller --max-num-batched-tokens, or a lower --gpu-memory-utilization",
    ),
    (
        End.OUT_OF_MEMORY,
        r"less than desired GPU memory utilization|[Nn]o available memory for the cache blocks|"
        r"larger than the available KV cache memory|KV cache is needed, which is larger|at least one request with",
        "the model and its KV cache do not fit",
        "end what else runs on the GPU (nvidia-smi), or give a lower --max-model-len, --tp 2 or another "
        "--gpu-memory-utilization",
    ),
    (
        End.NOT_STARTED,
        r"gated repo|GatedRepo|401 Client Error|403 Client Error",
        "the model may be read with permission only",
        "log in (huggingface-cli login), or give a folder with its config.json: dummy weights need no more",
    ),
    (
        End.NOT_STARTED,
        r"RepositoryNotFound|Repository Not Found|not a valid model identifier|Invalid repository ID|HFValidationError|"
        r"Can't load the configuration|does not appear to have a file named config|OfflineModeIsEnabled|"
        r"LocalEntryNotFound|couldn't connect to|Cannot find any model weights|Unrecognized model|"
        r"Repo id must|No such file or directory: '[^']*config\.json|offline mode|does not exist on the Hub",
        "the model was not found",
        "give a Hugging Face id that this machine can reach, or a folder with a config.json",
    ),
    (
        End.NOT_STARTED,
        r"unexpected keyword argument|validation errors? for|world size|(Value|Type|Key|NotImplemented)Error",
        "vLLM refused its arguments",
        "change the flag that it names (--engine-arg K=V and the engine's own flags are passed on as they are)",
    ),
)


def diagnose(error: str, log: list[str], code: int) -> tuple[End, str]:
    """How it ended, and what to say about it. error: the exception, if any; log: the last lines; code: exit code."""
    for text in (error, "\n".join(telling(log, most=20))):
        for end, shows, means, remedy in CAUSES:
            if re.search(shows, text):
                last = main_error(error, log)
                return end, f"{means}: {last}; {remedy}" if last else f"{means}; {remedy}"
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        remedy = "look at the kernel's log (dmesg); a smaller model or fewer workers need less of the host's memory"
        return End.OUT_OF_MEMORY, f"it was killed, most likely because the host ran out of memory; {remedy}"
    how = f"it ended with {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
    last = main_error(error, log)
    return End.DIED, f"{how}: {last}" if last else how


def main_error(error: str, log: list[str]) -> str:
    """The sentence that says most: the exception's first line, else the last error in the log."""
    first, *_ = error.strip().splitlines() or [""]
    return first[:300] or "".join(telling(log, most=1))[-300:]


def telling(log: list[str], most: int = 5) -> list[str]:
    """The lines of a log that tell of an error: no frames of a traceback, no progress bars, no plain information."""
    found = []
    for line in log:
        text = re.sub(r"^\(.*? pid=\d+\)\s*", "", line.rstrip()).strip()
        if re.match(r"(?:[\w.]+(?:Error|Exception|Interrupt|Exit)\b|ERROR\b|Fatal|Segmentation|Killed|Aborted)", text):
            text = re.sub(r"^ERROR [\d-]+ [\d:]+ \[[^\]]*\]\s*", "", text)
            if text and not text.startswith(("File ", "Traceback", "^", "~")):
                found.append(text)
    return list(dict.fromkeys(found))[-most:]
