// The tools of the group "framework", as the documents print them.

import { tryTools } from "./try-tools.ts";

tryTools("framework");
