import { lookUp } from "../../json.ts";
import type { KubernetesObject } from "../../review.ts";
import { shown } from "../values/texts.ts";

/** As many characters as a placeholder may make of a name or an address. */
const longest = 65_536;

/**
 * A text with its `{{a.b.c}}` replaced by what the object has there; undefined where it has no text, number or boolean
 * in one of these places. `encoded` makes of a value what may stand at that point of the text.
 */
export const fill = (
  text: string,
  object: KubernetesObject,
  encoded: (value: string, at: number) => string = (value) => value,
): string | undefined => {
  let filled = "";
  let [at, isWhole] = [0, true];
  for (;;) {
    const open = text.indexOf("{{", at);
    const close = open < 0 ? -1 : text.indexOf("}}", open + 2);
    // What is never closed is no placeholder.
    if (close < 0) break;
    const path = text.slice(open + 2, close);
    if (path === "") throw new Error(`${shown(text)} has a placeholder without a path; write {{metadata.name}}`);
    const value = lookUp(object, path.split("."))?.value;
    if (typeof value === "object" || value === undefined) isWhole = false;
    else filled += text.slice(at, open) + encoded(String(value), open);
    if (filled.length > longest) throw new Error(`${shown(text)} gets longer than ${longest} characters`);
    at = close + 2;
  }
  return isWhole ? filled + text.slice(at) : undefined;
};
