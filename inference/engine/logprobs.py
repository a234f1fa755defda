"""Log-probabilities of the model's own distribution, whatever is done to the logits before a token is drawn."""

import numpy as np
import numpy.typing as npt

from inference.engine.sampler import BadLogitsError, largest
from inference.protocol import TokenLogprobs

Float32 = npt.NDArray[np.float32]


def token_logprobs(logits: Float32, token_id: int, count: int) -> TokenLogprobs:
    """Score a token and the `count` likeliest ones: logit minus the logarithm of the summed exponentials.

    logits: [rows of the embedding], as the model gave them. Exponentials are float32 and summed in float64, so that a
    value is within about 1e-6 of a softmax in float64. Raises BadLogitsError.
    """
    peak = logits.max()
    if not np.isfinite(peak):
        raise BadLogitsError(f"the model gave {peak} as its largest logit")
    total = float(peak) + float(np.log(np.exp(logits - peak).sum(dtype=np.float64)))
    top: dict[int, float] = {}
    if count > 0:
        ids = largest(logits, count)
        likeliest_first = ids[np.argsort(-logits[ids], kind="stable")]
        top = {int(i): float(logits[i]) - total for i in likeliest_first}
    return TokenLogprobs(token_id, float(logits[token_id]) - total, top)
