"""peptidyn: torsion-space molecular dynamics of polypeptides, and of any molecule an OpenMM System holds."""

import lazy_loader

from peptidyn._version import __version__ as __version__

# names are imported on first use, so that `import peptidyn` is quick; they are listed in __init__.pyi
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
