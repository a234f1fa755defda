"""Static files under names that carry their content's hash, so that browsers may keep them for ever."""

from django.contrib.staticfiles.storage import HashedFilesMixin
from servestatic.storage import CompressedManifestStaticFilesStorage

_CSS_URLS = dict(HashedFilesMixin.patterns)["*.css"]
_MODULE_IMPORTS = HashedFilesMixin._js_module_import_aggregation_patterns[1]  # type: ignore[attr-defined]


class HashedStaticStorage(CompressedManifestStaticFilesStorage):
    """Rewrites imports and url()s in our own files alone: libraries have examples in comments that lead nowhere."""

    support_js_module_import_aggregation = True
    patterns = (("css/*.css", _CSS_URLS),)
    _js_module_import_aggregation_patterns = ("js/*.js", _MODULE_IMPORTS)
