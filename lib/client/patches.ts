import { Failure } from "../failure.ts";
import { getOwn, isMap, parsePointer } from "../json.ts";
import { between } from "../patch.ts";
import type { KubernetesObject, Patch } from "../review.ts";
import { json, mediaType, objectIn, parsed } from "./body.ts";
import { lasting } from "./world.ts";
import { asObject, current, judgedAs, sent, settled, type Write } from "./write.ts";

const jsonPatch = "application/json-patch+json";
const applying = "application/apply-patch+yaml";
const patching = [jsonPatch, "application/merge-patch+json", "application/strategic-merge-patch+json", applying];

/** The number of retries after conflicts, and of further rounds of a server-side apply. */
const mostConflicts = 3;

/**
 * Handles a PATCH. The API server computes the result in a dry run. If rules change the result, a patch with the
 * difference from the current object is sent instead, together with a test of the object's resourceVersion.
 */
export const patched = async (write: Write): Promise<Response> => {
  const given = parsed(write.body, write.headers, patching);
  if (mediaType(write.headers) === applying) return appliedTo(write);
  if (!isMap(given) && !Array.isArray(given)) throw new Failure(400, "the body must be a patch as JSON");
  for (let conflicts = 0; ; conflicts++) {
    const { answer, isOurs = false } = await attempt(write);
    if (!isOurs || conflicts >= mostConflicts || !(await isConflict(answer))) return answer;
    await answer.body?.cancel();
  }
};

/** `isOurs` is true if the answer is to a patch made here instead of the program's. */
const attempt = async (write: Write): Promise<{ answer: Response; isOurs?: boolean }> => {
  const old = await current(write);
  if (old instanceof Response) return { answer: old };
  // The object doesn't exist; the API server's own answer says so.
  if (old === undefined) return { answer: await sent(write) };
  const result = await tried(write, write.body);
  if (result instanceof Response) return { answer: result };
  const judged = await judgedAs(write, result, old);
  const isOurs = judged.changed && judged.refusal === undefined;
  return { answer: await settled(judged, () => (isOurs ? instead(write, old, judged.object) : sent(write))), isOurs };
};

/** Returns what the patch results in, by a dry run; or the API server's response if it refuses the patch. */
const tried = async (
  { url, headers, send }: Write,
  body: Uint8Array<ArrayBuffer>,
): Promise<KubernetesObject | Response> => {
  const place = new URL(url);
  place.searchParams.set("dryRun", "All");
  const type = headers.get("content-type") ?? json;
  const response = await send("PATCH", String(place), lasting(headers, { accept: json, "content-type": type }), body);
  if (!response.ok) return response;
  const result = asObject(await response.text());
  if (result === undefined) throw new Failure(500, "the API server's answer to a dry run of the patch is no object");
  return result;
};

/** Fields that the API server sets itself and doesn't accept from a patch. */
const kept = /^\/metadata\/(managedFields|resourceVersion|generation|uid|creationTimestamp|selfLink)(\/|$)/;

const instead = (write: Write, old: KubernetesObject, object: KubernetesObject): Promise<Response> => {
  const changes = between(old, object, "").filter(({ path }) => !kept.test(path));
  const version = versionOf(old);
  const guarded = version === undefined ? [] : [{ op: "test", path: "/metadata/resourceVersion", value: version }];
  const headers = new Headers(write.headers);
  headers.set("content-type", jsonPatch);
  return sent(write, [...guarded, ...changes], headers);
};

const versionOf = ({ metadata }: KubernetesObject): unknown => Object(metadata).resourceVersion;

/**
 * Reports whether another client changed the object first: a conflict, or a failed test of resourceVersion. The API
 * server answers a failed test with reason Invalid and no details.kind; for an invalid object it names the kind.
 */
const isConflict = async (response: Response): Promise<boolean> => {
  if (response.status === 409) return true;
  if (response.status !== 422) return false;
  const { reason, details } = Object(asObject(await response.clone().text()));
  return reason === "Invalid" && Object(details).kind === undefined;
};

/**
 * Handles a server-side apply. Merges the rules' changes into it and repeats the dry run until the rules change
 * nothing. Throws a Failure if an apply can't express a change, such as the removal of a field that it doesn't set.
 */
const appliedTo = async (write: Write): Promise<Response> => {
  const old = await current(write);
  if (old instanceof Response) return old;
  let body = objectIn(write.body, write.headers, [applying]);
  const warnings: string[] = [];
  for (let round = 0; ; round++) {
    const isGiven = round === 0;
    const bytes = isGiven ? write.body : new Uint8Array(Buffer.from(JSON.stringify(body)));
    const result = await tried(write, bytes);
    if (result instanceof Response) return result;
    const judged = await judgedAs(write, result, old);
    for (const warning of judged.warnings) warnings.push(warning);
    if (judged.refusal || !judged.changed)
      return settled({ ...judged, warnings }, () => sent(write, isGiven ? undefined : body));
    if (round === mostConflicts) throw unmergeable("they want it otherwise again each time");
    body = between(result, judged.object, "").reduce((merged, change) => mergedWith(merged, result, change), body);
  }
};

const unmergeable = (why: string) =>
  new Failure(
    422,
    `the rules change what is applied in a way that a server-side apply can't say (${why}); apply the object as they want it, or use another kind of patch`,
  );

/** Merges a change into an apply. Supports changes in maps, and in list elements that the apply identifies by name. */
const mergedWith = (body: KubernetesObject, result: unknown, change: Patch[number]): KubernetesObject => {
  const within = (said: unknown, stored: unknown, [step, ...rest]: string[]): unknown => {
    if (step === undefined) return change.op === "remove" ? undefined : change.value;
    if (Array.isArray(stored)) {
      const element: unknown = stored[Number(step)];
      const { name } = Object(element);
      const index = Array.isArray(said)
        ? said.findIndex((one) => typeof name === "string" && Object(one).name === name)
        : -1;
      if (rest.length === 0 || index < 0 || !Array.isArray(said))
        throw unmergeable(`it is in a list, at ${change.path}`);
      return said.with(index, within(said[index], element, rest));
    }
    const map = isMap(said) ? said : {};
    if (said !== undefined && !isMap(said)) throw unmergeable(`it is in no map, at ${change.path}`);
    const value = within(getOwn(map, step), isMap(stored) ? getOwn(stored, step) : undefined, rest);
    const others = Object.entries(map).filter(([key]) => key !== step);
    return Object.fromEntries(value === undefined ? others : [...others, [step, value]]);
  };
  // The result is a map: rules can't replace a whole object.
  return within(body, result, parsePointer(change.path)) as KubernetesObject;
};
