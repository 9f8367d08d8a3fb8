import { computePatch } from "../core/patch.ts";
import { Failure } from "../failure.ts";
import { getOwn, isMap, parseJson, parsePointer, toMap } from "../json.ts";
import type { KubernetesObject, Patch } from "../review.ts";
import { addProgramHeaders } from "./program-capabilities.ts";
import { getMediaType, jsonContentType, parseBody, parseKubernetesObjectBody } from "./request-body.ts";
import {
  evaluateWrite,
  type InterceptedWrite,
  parseJsonMap,
  readCurrentObjectOrSendWrite,
  sendUnlessRefused,
  sendWrite,
} from "./write.ts";

const jsonPatchType = "application/json-patch+json";
const applyType = "application/apply-patch+yaml";
const patchTypes = [jsonPatchType, "application/merge-patch+json", "application/strategic-merge-patch+json", applyType];

/** The most retries of a PATCH after conflicts, and the most further rounds of a server-side apply. */
const maxRetries = 3;

/**
 * Handles a PATCH. The API server computes the result in a dry run. If rules change the result, another patch is sent
 * instead: the difference between the current object and the changed result, and a test of the resourceVersion.
 */
export const evaluateAndSendPatch = async (write: InterceptedWrite): Promise<Response> => {
  const patch = parseBody(write.body, write.headers, patchTypes);
  if (getMediaType(write.headers) === applyType) return sendApply(write);
  if (!isMap(patch) && !Array.isArray(patch)) throw new Failure(400, "the body must be a patch as JSON");
  for (let retries = 0; ; retries++) {
    const old = await readCurrentObjectOrSendWrite(write);
    if (old instanceof Response) return old;
    // If the object doesn't exist, the patch is sent, so that the API server answers with its error.
    if (old === undefined) return sendWrite(write);
    const patched = await sendDryRun(write, write.body);
    if (patched instanceof Response) return patched;
    const result = await evaluateWrite(write, patched, old);
    const { isChanged, refusal } = result;
    const response = await sendUnlessRefused(result, () =>
      isChanged ? sendDifference(write, old, result.object) : sendWrite(write),
    );
    if (!isChanged || refusal || retries >= maxRetries || !(await isConflict(response))) return response;
    await response.body?.cancel();
  }
};

/** Sends the patch as a dry run. Returns the result, or the API server's response if it refuses the patch. */
const sendDryRun = async (
  { url, headers, send }: InterceptedWrite,
  body: Uint8Array<ArrayBuffer>,
): Promise<KubernetesObject | Response> => {
  const address = new URL(url);
  address.searchParams.set("dryRun", "All");
  const type = headers.get("content-type") ?? jsonContentType;
  const dryRunHeaders = addProgramHeaders(headers, { accept: jsonContentType, "content-type": type });
  const response = await send("PATCH", String(address), dryRunHeaders, body);
  if (!response.ok) return response;
  const result = parseJsonMap(await response.text());
  if (result === undefined)
    throw new Failure(500, "the API server's answer to a dry run of the patch is not an object");
  return result;
};

/** The fields that the API server sets, so that a patch must not change them. */
const serverFields = /^\/metadata\/(managedFields|resourceVersion|generation|uid|creationTimestamp|selfLink)(\/|$)/;

/** Instead of the program's patch, sends a JSON patch with the difference between two objects. */
const sendDifference = (
  write: InterceptedWrite,
  old: KubernetesObject,
  object: KubernetesObject,
): Promise<Response> => {
  const changes = computePatch(old, object, "").filter(({ path }) => !serverFields.test(path));
  const version = old.metadata?.resourceVersion;
  const tests = version === undefined ? [] : [{ op: "test", path: "/metadata/resourceVersion", value: version }];
  const headers = new Headers(write.headers);
  headers.set("content-type", jsonPatchType);
  return sendWrite(write, [...tests, ...changes], headers);
};

/**
 * Reports whether a response means that another client has changed the object: it is a conflict, or the test of the
 * resourceVersion failed. The response to a failed test has the reason Invalid and no details.kind. (The response to an
 * invalid object has details.kind.)
 */
const isConflict = async (response: Response): Promise<boolean> => {
  if (response.status === 409) return true;
  if (response.status !== 422) return false;
  const { reason, details } = toMap(parseJson(await response.clone().text()));
  return reason === "Invalid" && toMap(details).kind === undefined;
};

/**
 * Handles a server-side apply. If rules change the result of the dry run, merges their changes into the applied object,
 * and repeats the dry run until rules change nothing. Throws a Failure if an apply can't express a change, such as the
 * removal of a field that it doesn't set.
 */
const sendApply = async (write: InterceptedWrite): Promise<Response> => {
  const old = await readCurrentObjectOrSendWrite(write);
  if (old instanceof Response) return old;
  let body = parseKubernetesObjectBody(write.body, write.headers, [applyType]);
  const warnings: string[] = [];
  for (let round = 0; ; round++) {
    const isUnchanged = round === 0;
    const bytes = isUnchanged ? write.body : new Uint8Array(Buffer.from(JSON.stringify(body)));
    const applied = await sendDryRun(write, bytes);
    if (applied instanceof Response) return applied;
    const result = await evaluateWrite(write, applied, old);
    for (const warning of result.warnings) warnings.push(warning);
    if (result.refusal || !result.isChanged)
      return sendUnlessRefused({ ...result, warnings }, () => sendWrite(write, isUnchanged ? undefined : body));
    if (round === maxRetries) throw buildApplyFailure("they change it again in every round");
    body = computePatch(applied, result.object, "").reduce(
      (merged, change) => mergeChange(merged, applied, change),
      body,
    );
  }
};

const buildApplyFailure = (why: string) =>
  new Failure(
    422,
    `the rules change the object in a way that a server-side apply can't express (${why}); apply the object with these changes, or use another kind of patch`,
  );

/**
 * Merges a change that rules make to the `applied` object, the result of the dry run, into the body of the server-side
 * apply. Elements of lists are found by their name, because the two lists may have different elements.
 */
const mergeChange = (body: KubernetesObject, applied: unknown, change: Patch[number]): KubernetesObject => {
  const merge = (part: unknown, appliedPart: unknown, [step, ...rest]: string[]): unknown => {
    if (step === undefined) return change.op === "remove" ? undefined : change.value;
    if (Array.isArray(appliedPart)) {
      const element: unknown = appliedPart[Number(step)];
      const { name } = toMap(element);
      const hasName = (candidate: unknown) => typeof name === "string" && toMap(candidate).name === name;
      const index = Array.isArray(part) ? part.findIndex(hasName) : -1;
      if (rest.length === 0 || index < 0 || !Array.isArray(part))
        throw buildApplyFailure(`the change is in a list, at ${change.path}`);
      return part.with(index, merge(part[index], element, rest));
    }
    const map = toMap(part);
    if (part !== undefined && !isMap(part)) throw buildApplyFailure(`the change is not in a map, at ${change.path}`);
    const value = merge(getOwn(map, step), isMap(appliedPart) ? getOwn(appliedPart, step) : undefined, rest);
    const others = Object.entries(map).filter(([key]) => key !== step);
    return Object.fromEntries(value === undefined ? others : [...others, [step, value]]);
  };
  // The cast is safe: rules can change members but can't replace the object, so the result is a map.
  return merge(body, applied, parsePointer(change.path)) as KubernetesObject;
};
