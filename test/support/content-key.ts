// The CONTENT_KEY of the gateways of tests.

export const contentKey = Buffer.alloc(32, "k").toString("base64");
