import { Failure } from "../failure.ts";
import { isMap } from "../json.ts";
import type { AdmissionRequest } from "../review.ts";
import { unfit } from "./answers.ts";
import { mediaType, objectIn, parsed } from "./body.ts";
import { concerned } from "./chain.ts";
import { patched } from "./patches.ts";
import type { Plan } from "./plans.ts";
import { addressOf, type Target, targetOf } from "./target.ts";
import { ownWorlds, type Send } from "./world.ts";
import { current, judgedAs, requestOf, type Setup, sent, settled, type Write } from "./write.ts";

/** A request of the program. `open` is called only if a rule matches the request. */
export interface Made {
  method: string;
  address: string;
  send: Send;
  open(): { headers: Headers; read(): Promise<Uint8Array<ArrayBuffer>> };
}

/** Returns a handler of requests. The handler returns undefined if no rule matches: the caller sends that request. */
export const gate = (setup: Setup) => {
  const open = ownWorlds();
  return async ({ method, address, send, open: look }: Made): Promise<Response | undefined> => {
    try {
      const url = addressOf(method, address);
      const target = url && targetOf(method, url, setup.server);
      if (url === undefined || target === undefined || !isOurs(setup.plans, target)) return undefined;
      const { headers, read } = look();
      const { failurePolicy, now, tell } = setup;
      const around = { failurePolicy, now, tell, world: setup.world ?? open(target.server, headers, send) };
      const write: Write = { target, url, method, headers, body: await read(), send, setup, around };
      return await ways[method]?.(write);
    } catch (error) {
      if (error instanceof Failure) return unfit(error);
      throw error;
    }
  };
};

const isOurs = (plans: readonly Plan[], target: Target): boolean => {
  const request = requestOf(target, { group: "", version: "", kind: "" }, {});
  // A PUT or PATCH of an object that doesn't exist may create it.
  const created: AdmissionRequest = { ...request, operation: "CREATE" };
  const requests = target.operation === "UPDATE" ? [request, created] : [request];
  return requests.some((one) =>
    (["mutate", "validate"] as const).some((phase) => concerned(plans, phase, one).length > 0),
  );
};

const create = async (write: Write): Promise<Response> => {
  const given = objectIn(write.body, write.headers);
  const judged = await judgedAs(write, given, undefined);
  return settled(judged, () => sent(write, judged.changed ? judged.object : undefined));
};

const replace = async (write: Write): Promise<Response> => {
  const given = objectIn(write.body, write.headers);
  const old = await current(write);
  if (old instanceof Response) return old;
  const judged = await judgedAs(write, given, old);
  return settled(judged, () => sent(write, judged.changed ? judged.object : undefined));
};

const remove = async (write: Write): Promise<Response> => {
  const old = await current(write);
  if (old instanceof Response) return old;
  // The object doesn't exist; the API server's own answer says so.
  if (old === undefined) return sent(write);
  const dryRun = write.target.dryRun || isDryRun(write);
  const judged = await judgedAs({ ...write, target: { ...write.target, dryRun } }, undefined, old);
  return settled(judged, () => sent(write));
};

/** The body of a DELETE may hold its options, such as dryRun. */
const isDryRun = ({ body, headers }: Write): boolean => {
  if (body.length === 0) return false;
  const options = parsed(body, headers, [mediaType(headers)]);
  return isMap(options) && Array.isArray(options.dryRun) && options.dryRun.includes("All");
};

const ways: Record<string, (write: Write) => Promise<Response>> = {
  POST: create,
  PUT: replace,
  PATCH: patched,
  DELETE: remove,
};
