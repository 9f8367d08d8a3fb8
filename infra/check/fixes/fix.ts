import { realpath, writeFile } from "node:fs/promises";
import { isAbsolute, relative, resolve, sep } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { type Document, isCollection, isMap, isSeq, Pair, type ParsedNode, visit } from "yaml";
import { applyPatch, computePatch } from "#lib/core/patch.ts";
import { writeIntegerExactly } from "#lib/exact-json.ts";
import { escapeJsonPointerStep, getOwn, isObject, parsePointer } from "#lib/json.ts";
import type { Patch } from "#lib/review.ts";
import { Complaint, toSentence } from "../../cli/complaint.ts";
import { formatCount } from "../../cli/progress.ts";
import { toOneLine } from "../../cli/terminal.ts";
import { hideInValue } from "../../diff/secret-values.ts";
import { escapeControls, longestKey, needsQuotes, type YamlIndentation } from "../../diff/yaml-lines.ts";
import type { FieldPath, Manifest } from "../../manifests/manifests.ts";
import { parseYamlDocuments } from "../../manifests/yaml.ts";
import { isShownChange } from "../evaluation/findings.ts";
import type { ObjectEvaluation } from "../evaluation/object-evaluation.ts";
import { isReview } from "../evaluation/requests.ts";
import { editYamlText, type YamlEdit } from "./yaml-edits.ts";

/** The changes that rules and policies made to a manifest's object, to be written into the manifest's file. */
export interface ManifestFix {
  manifest: Manifest;
  patch: Patch;
  after: unknown;
  /** True if a change has the value of a Secret that a rule or a policy has read. */
  hasSecret?: boolean;
}

/**
 * Returns the fix for an object; undefined if nothing changed or the object has no manifest file of its own. `read` are
 * the Secrets that rules and policies have read.
 */
export const toFix = (
  { subject, checked, steps, before, after: final }: ObjectEvaluation,
  read: Iterable<unknown> = [],
): ManifestFix | undefined => {
  const { manifest, podOfWorkload } = subject;
  // No fix is written into the file of a recorded review: it is a record, not a manifest.
  if (checked.verdict !== "changed" || podOfWorkload || isReview(manifest) || manifest.source.name === "-")
    return undefined;
  // Fields that plugins fill in after the last change aren't written. But a webhook may have changed the object in
  // another version, to which the API server converted it: then only the final object can be compared with `before`.
  const last = steps.findLast(isShownChange)?.after;
  const after = getOwn(last, "apiVersion") === getOwn(before, "apiVersion") ? last : final;
  const patch = computePatch(before, after, "");
  const secrets = [...read];
  const hasSecret = secrets.length > 0 && !isDeepStrictEqual(hideInValue(patch, secrets), patch);
  return patch.length > 0 ? { manifest, patch, after, hasSecret } : undefined;
};

/**
 * The most characters of a YAML document that is edited in place. A longer document is printed anew as a whole,
 * because each edit parses the whole text.
 */
const longestEditedInPlace = 256 * 1024;

/** Returns a file's text with the fixes, its comments and order kept; or the reason why the file stays as it is. */
export const applyFixes = (text: string, fixes: readonly ManifestFix[]): { text: string } | { kept: string } => {
  // Edits with LF and restores CRLF afterwards, so that new lines end like the others.
  if (text.includes("\r\n") && !/(^|[^\r])\n/.test(text)) {
    const fixed = applyFixes(text.replaceAll("\r\n", "\n"), fixes);
    return "kept" in fixed ? fixed : { text: fixed.text.replaceAll("\n", "\r\n") };
  }
  if (fixes.some(({ hasSecret }) => hasSecret))
    return { kept: "a change has the value of a Secret that a rule or a policy reads" };
  const byDocument = Map.groupBy(fixes, ({ manifest }) => manifest.document);
  const parts: string[] = [];
  let from = 0;
  let index = 0;
  for (const { to } of parseYamlDocuments(text)) {
    const part = text.slice(from, to);
    const own = byDocument.get(index++);
    const fixed = own === undefined ? part : fixDocument(part, own);
    if (fixed === undefined || own?.some(({ manifest }) => manifest.repeated))
      return { kept: "it has aliases or a key twice, or the place of a change in its text is unknown" };
    parts.push(fixed);
    from = to;
  }
  return { text: parts.join("") + text.slice(from) };
};

/** Returns the text of a document with these fixes; undefined if it can't be edited. */
const fixDocument = (text: string, fixes: readonly ManifestFix[]): string | undefined => {
  const document = parseSingleDocument(text);
  if (document === undefined || hasAliases(document)) return undefined;
  const isLong = text.length > longestEditedInPlace;
  /** The value to which the fixed text must parse. */
  let wanted: unknown = document.toJS();
  let fixed: string | undefined = text;
  for (const { manifest, patch, after } of fixes)
    for (const change of patch) {
      // `after` is the object after the whole patch: from it, a list that the manifest lacks is written with all items.
      const edit = toYamlEdit(manifest.path.reduce<unknown>(getOwn, wanted), change, after);
      if (edit === undefined) continue;
      const path = [...manifest.path, ...edit.steps].map((step) => `/${escapeJsonPointerStep(String(step))}`).join("");
      wanted = applyPatch(wanted, [
        edit.op === "remove" ? { op: "remove", path } : { op: edit.op, path, value: edit.value },
      ]);
      // Of a long text, all edits are applied to its parsed document, which is printed once.
      if (isLong) applyToDocument(document, manifest.path, edit);
      else fixed = editText({ text: fixed, original: text, place: manifest.path }, edit, wanted);
      if (fixed === undefined) return undefined;
    }
  if (isLong) fixed = isJson(text) ? printJson(wanted, text) : printDocument(document, text);
  return fixed !== undefined && isDeepStrictEqual(parseSingleDocument(fixed)?.toJS(), wanted) ? fixed : undefined;
};

/**
 * Returns a document's text after one more edit of the object at `place`, in the style of the original text. If the
 * text edited in place doesn't have the wanted value, the whole document is printed; undefined if kubectl could not
 * read that.
 */
const editText = (
  { text, original, place }: { text: string; original: string; place: FieldPath },
  edit: YamlEdit,
  wanted: unknown,
): string | undefined => {
  const document = parseSingleDocument(text);
  if (document === undefined) return undefined;
  const target = { text, document, place, isJson: isJson(original), layout: detectLayout(original) };
  const edited = editYamlText(target, edit);
  if (edited !== undefined && isDeepStrictEqual(parseSingleDocument(edited)?.toJS(), wanted)) return edited;
  applyToDocument(document, place, edit);
  return printDocument(document, original);
};

const parseSingleDocument = (text: string): Document.Parsed | undefined => {
  const [first, ...others] = [...parseYamlDocuments(text)];
  return first !== undefined && others.length === 0 && first.document.errors.length === 0 ? first.document : undefined;
};

/** Reports whether a YAML document has aliases (`*name`). */
const hasAliases = (document: Document.Parsed): boolean => {
  let found = false;
  visit(document, {
    Alias: () => {
      found = true;
      return visit.BREAK;
    },
  });
  return found;
};

/**
 * Translates a change of the defaulted object into an edit of the manifest, which has no defaults: an addition may have
 * to create its parents, and a removed field may never have been written. Returns undefined if the document lacks the
 * object or the field to remove. `defaultedAfter` is the defaulted object after all changes.
 */
const toYamlEdit = (object: unknown, change: Patch[number], defaultedAfter: unknown): YamlEdit | undefined => {
  const all = parsePointer(change.path);
  const isPresent = all.reduce<unknown>(getOwn, object) !== undefined;
  if (change.op === "remove") return isPresent ? { steps: all, op: "remove" } : undefined;
  if (object === undefined) return undefined;
  let holder: unknown = object;
  for (const [depth, step] of all.entries()) {
    const steps = all.slice(0, depth + 1);
    const inner = getOwn(holder, step);
    const isLast = depth === all.length - 1;
    // An `add` to a list stays one, even if there is an item at the index: it inserts an item before that.
    if (isLast && Array.isArray(holder)) return { steps, op: change.op, value: change.value };
    if (isLast || !isObject(inner)) {
      // At the last step, the edit writes the value alone. Before it, the manifest lacks parents of the field: the edit
      // writes the value inside them. If one of them is a list, it is written with all items of `defaultedAfter`.
      const value = nestValue(all.slice(depth + 1), change.value, steps.reduce<unknown>(getOwn, defaultedAfter));
      return { steps, op: inner === undefined ? "add" : "replace", value };
    }
    holder = inner;
  }
  return undefined;
};

/**
 * Returns a value inside new nested maps, one for each step of its path; a list on the path is taken whole from the
 * changed object.
 */
const nestValue = ([step, ...rest]: readonly string[], value: unknown, changed: unknown): unknown => {
  if (step === undefined) return value;
  if (Array.isArray(changed)) return changed;
  return Object.fromEntries([[step, nestValue(rest, value, getOwn(changed, step))]]);
};

/** Applies an edit to a parsed YAML document. `place` is the path of the object in the document. */
const applyToDocument = (document: Document.Parsed, place: FieldPath, { steps, op, value }: YamlEdit): void => {
  let holder: unknown = place.length === 0 ? document.contents : document.getIn(place, /* keepScalar */ true);
  for (const step of steps.slice(0, -1))
    holder = isCollection(holder) ? holder.get(toCollectionKey(holder, step), /* keepScalar */ true) : undefined;
  if (!isCollection(holder)) return;
  const key = toCollectionKey(holder, steps.at(-1) ?? "");
  const node = createQuotedNode(document, value);
  if (op === "remove") holder.delete(key);
  else if (isSeq(holder) && op === "add") holder.items.splice(Number(key), 0, node);
  else if (isSeq(holder) || (isMap(holder) && holder.has(key))) holder.set(key as never, node as never);
  else if (isMap(holder)) holder.add(new Pair(createQuotedNode(document, key), node));
};

/** Returns a node for a value, with quotes around strings that YAML 1.1 or 1.2 would read as another type. */
const createQuotedNode = (document: Document.Parsed, value: unknown): ParsedNode => {
  const root = document.createNode(value) as ParsedNode;
  visit(root, {
    Scalar: (_, node) => {
      const { value } = node;
      // Text of several lines goes in block style, without quotes; leading white space would be ambiguous there.
      const isBlock = typeof value === "string" && /^\S.*\n/.test(value);
      if (typeof value === "string" && !isBlock && needsQuotes(value)) node.type = "QUOTE_DOUBLE";
    },
  });
  return root;
};

/** Returns the text of a whole document in the style of the old text; undefined if kubectl could not read it. */
const printDocument = (document: Document.Parsed, text: string): string | undefined => {
  let isReadable = true;
  visit(document, {
    Scalar: (place, node) => {
      const { value } = node;
      if (typeof value === "string" && escapeControls(value) !== value) node.type = "QUOTE_DOUBLE";
      // The package would print the text "<<" without its quotes, as the key that merges a map into another one.
      if (value === "<<") node.tag = "tag:yaml.org,2002:str";
      // Inside braces, the package prints a very long key without the `? ` that must precede it.
      if (place === "key" && String(value).length > longestKey) isReadable = false;
    },
  });
  return isReadable ? escapeControls(document.toString(detectStyle(text))) : undefined;
};

const toCollectionKey = (holder: unknown, step: string): string | number => (isSeq(holder) ? Number(step) : step);

const isJson = (text: string) => /^\s*[{[]\s*("|[}\]])/.test(text);

// The rest of a line after its key or value, with or without a comment; also an empty line, or one with only a comment.
const restOfLine = String.raw`(?:[ \t]*(?:#[^\n]*)?\n)`;
// `spec:`, and in the next line for instance `  replicas: 1`. The group is the indentation of that line.
const indentedField = new RegExp(String.raw`^[^\s#-][^\n]*:${restOfLine}+( {1,8})[^\s-]`, "m");
// `ports:`, and in the next line `- 80`. The groups are the indentations of the two.
const firstList = new RegExp(String.raw`^( *)[^\s#-][^\n]*:${restOfLine}+( *)- `, "m");
// `{` at the start of JSON, and in the next line for instance `  "kind": "Pod"`. The group is its indentation.
const indentedJsonMember = /^\s*[{[][ \t]*\n([ \t]+)/;

/** Finds how a text is indented: by how many spaces (`step`), and whether lists begin in the column of their key. */
const detectLayout = (text: string): YamlIndentation => {
  const [, indentation = ""] = (isJson(text) ? indentedJsonMember : indentedField).exec(text) ?? [];
  const [, key, item] = firstList.exec(text) ?? [];
  return {
    step: indentation.length || 2,
    // In a text without lists, new lists are written as kubectl does.
    hasUnindentedLists: key === item,
  };
};

const printJson = (value: unknown, text: string): string => {
  const [start = "", end = ""] = text.split(text.trim());
  const isTabbed = /^\s*[{[][ \t]*\n\t/.test(text);
  const isOneLine = !text.trim().includes("\n");
  const indentation = isTabbed ? "\t" : detectLayout(text).step;
  return start + JSON.stringify(value, writeIntegerExactly, isOneLine ? 0 : indentation) + end;
};

const detectStyle = (text: string) => {
  const { step, hasUnindentedLists } = detectLayout(text);
  const isTight = /[{[][^\s}\]]/.test(text) && !/[{[] \S/.test(text);
  return { lineWidth: 0, indent: step, indentSeq: !hasUnindentedLists, flowCollectionPadding: !isTight };
};

/** Writes the fixes into the text that was checked: a change made to the manifest's file since is overwritten. */
export const writeFixes = async (fixes: readonly ManifestFix[]): Promise<void> => {
  const byFile = Map.groupBy(fixes, ({ manifest }) => manifest.source);
  for (const [{ name, folder = ".", byteOrderMark = "", text }, own] of byFile) {
    const fixed = applyFixes(text, own);
    const target = await realpath(name).catch(() => name);
    const reportKept = (reason: string) =>
      process.stderr.write(`${toOneLine(`${name} is left as it is: ${reason}`)}\n`);
    if ("kept" in fixed) reportKept(fixed.kept);
    else if (!(await isWithin(folder, target))) reportKept(`it is a symbolic link to ${target}, outside of ${folder}`);
    else if (fixed.text !== text) {
      await writeText(target, byteOrderMark + fixed.text);
      process.stderr.write(`${toOneLine(name)}: ${formatCount(own.length, "object")} fixed\n`);
    }
  }
};

const isWithin = async (folder: string, target: string): Promise<boolean> => {
  const path = relative(await realpath(folder), resolve(target));
  return path !== ".." && !path.startsWith(`..${sep}`) && !isAbsolute(path);
};

const writeText = (file: string, text: string) =>
  writeFile(file, text).catch((error) => {
    throw new Complaint(`${file} can't be written: ${toSentence(error)}`);
  });
