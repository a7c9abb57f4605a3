// What is further down a page asks for its answers when somebody scrolls to it.

import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** A title alone is not worth a call. */
const margin = "0px 0px -80px 0px";

/** A place to attach to an element, and whether it has been on screen. */
export function useSeen(): readonly [RefObject<HTMLElement | null>, boolean] {
  const place = useRef<HTMLElement>(null);
  const [isSeen, setSeen] = useState(false);
  useEffect(() => {
    if (isSeen || !place.current) return;
    const observer = new IntersectionObserver(
      (entries) => entries.some((one) => one.isIntersecting) && setSeen(true),
      { rootMargin: margin },
    );
    observer.observe(place.current);
    return () => observer.disconnect();
  }, [isSeen]);
  return [place, isSeen];
}
