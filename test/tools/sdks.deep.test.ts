// The tools of the group "SDK", as the documents print them.

import { tryTools } from "./try-tools.ts";

tryTools("SDK");
