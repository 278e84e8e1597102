// What every page runs. A page's own modules come by its `scripts` block.
import "./live.js";
import "./tables.js";
import "./table_scroll.js";
import "./dialogs.js";
import "./charts.js";
import "./keys.js";
