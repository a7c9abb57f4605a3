// Whether anybody can see the page.

import { useEffect, useState } from "preact/hooks";

/**
 * False while the tab is in the background. A stream that nobody sees should be closed: a browser
 * keeps few connections to one address, for all tabs together.
 */
export function useVisible(): boolean {
  const [isVisible, setVisible] = useState(document.visibilityState === "visible");
  useEffect(() => {
    const read = () => setVisible(document.visibilityState === "visible");
    document.addEventListener("visibilitychange", read);
    return () => document.removeEventListener("visibilitychange", read);
  }, []);
  return isVisible;
}
