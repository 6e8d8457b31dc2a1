"""What Python runs first in Spark's workers, which find this file by PYTHONPATH.

Spark shows its workers its Python packages as zips of sources, and each kind of worker would compile them
anew. The same packages are installed, compiled: without the zips, and the jar beside them, those are found.
"""

import sys

sys.path[:] = [place for place in sys.path if not place.endswith(("/pyspark.zip", "-src.zip", ".jar"))]
