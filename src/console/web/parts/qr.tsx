// A QR code as SVG: one path, always dark on light, since not every camera reads the reverse.

import { FileMissing, useNeeded } from "./later.tsx";

/** `text`: what a wallet reads. `label`: what the code holds, in words. */
export function Qr({ text, label }: { readonly text: string; readonly label: string }) {
  const { file, isMissing } = useNeeded(() => import("../later/drawing.ts"));
  if (isMissing) return <FileMissing />;
  // Its place is kept until it is there.
  const { side, path } = file?.drawQr(text) ?? { side: 1 };
  return (
    <svg class="qr" role="img" aria-label={label} viewBox={`0 0 ${side} ${side}`}>
      <rect class="qr-light" width={side} height={side} />
      <path class="qr-dark" shape-rendering="crispEdges" d={path} />
    </svg>
  );
}
