// The tools of the group "gRPC", as the documents print them.

import { tryTools } from "./try-tools.ts";

tryTools("gRPC");
