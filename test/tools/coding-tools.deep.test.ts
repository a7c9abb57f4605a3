// The tools of the group "coding tool", as the documents print them.

import { tryTools } from "./try-tools.ts";

tryTools("coding tool");
