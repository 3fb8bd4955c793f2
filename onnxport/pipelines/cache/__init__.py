"""The cache of pipelines: products by the digest of all that they depend on (graph/cache_keys.py).

An entry is a folder that appears by one rename and is never written again, so runs that share the cache need no lock.
entries.py has the form of an entry, store.py the operations of a run, workspace.py the private folders of a run, and
files.py the file operations of all three.
"""

from onnxport.pipelines.cache.entries import Entry
from onnxport.pipelines.cache.store import Cache, folder_beside, home_of, timings_beside

__all__ = ["Cache", "Entry", "folder_beside", "home_of", "timings_beside"]
