import { lookUp } from "../../json.ts";
import type { KubernetesObject } from "../../review.ts";
import { shown } from "../values/texts.ts";

/** In characters, for a text with its placeholders filled. */
const longest = 65_536;

/**
 * Replaces each `{{a.b.c}}` in a text by the object's value there; returns undefined if one of these values is no text,
 * number or boolean. `encoded` escapes a value for its position in the text.
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
    // An unclosed {{ is plain text.
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
