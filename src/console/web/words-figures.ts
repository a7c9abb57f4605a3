// The words of usage, requests and credits.

export const figures = {};
