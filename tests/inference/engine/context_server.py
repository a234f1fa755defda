"""The real engine process around the small stand-in model: `python -m tests.inference.engine.context_server`."""

import sys

from inference.server import main
from tests.inference.engine.context_model import load_context_engine

if __name__ == "__main__":
    sys.exit(main(load=load_context_engine))
