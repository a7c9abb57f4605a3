// The tools of the group "command line", as the documents print them.

import { tryTools } from "./try-tools.ts";

tryTools("command line");
