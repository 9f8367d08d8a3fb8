import { Failure } from "../failure.ts";
import { isMap } from "../json.ts";
import type { AdmissionRequest, UserInfo } from "../review.ts";
import { filterMatching, type RuleChainContext } from "./chain.ts";
import type { RuleAsWebhookEntry } from "./guard-entries.ts";
import { evaluateAndSendPatch } from "./patch-requests.ts";
import { createProgramCapabilitiesFactory, type SendWithProgramOptions } from "./program-capabilities.ts";
import { getMediaType, parseBody, parseKubernetesObjectBody } from "./request-body.ts";
import { toFailureResponse } from "./responses.ts";
import { parseTarget, parseWriteUrl, type WriteTarget } from "./target.ts";
import {
  buildAdmissionRequest,
  evaluateWrite,
  type InterceptedWrite,
  readCurrentObjectOrSendWrite,
  sendUnlessRefused,
  sendWrite,
} from "./write.ts";

/** A request of the program. `open` returns its headers and body. It is called only if a rule matches the request. */
export interface InterceptedProgramRequest {
  method: string;
  address: string;
  send: SendWithProgramOptions;
  open(): { headers: Headers; read(): Promise<Uint8Array<ArrayBuffer>> };
}

/** A guard's options with their defaults. */
export interface GuardContext extends Omit<RuleChainContext, "capabilities"> {
  server: URL | undefined;
  user: UserInfo;
  /** Returns the capabilities of rules. If undefined, rules read the cluster with the program's credentials. */
  capabilities: RuleChainContext["capabilities"] | undefined;
}

/** Returns a function that handles a request. It returns undefined if no rule matches: the caller must send it. */
export const createWriteInterceptor = (guard: GuardContext) => {
  const openCapabilities = createProgramCapabilitiesFactory();
  return async ({ method, address, send, open }: InterceptedProgramRequest): Promise<Response | undefined> => {
    try {
      const url = parseWriteUrl(method, address);
      const target = url && parseTarget(method, url, guard.server);
      if (url === undefined || target === undefined || !isMatched(guard.entries, target)) return undefined;
      const { headers, read } = open();
      const capabilities = guard.capabilities ?? openCapabilities(target.server, headers, send);
      const context = { ...guard, capabilities };
      const body = await read();
      return await handlers[method]?.({ target, url, method, headers, body, send, user: guard.user, context });
    } catch (error) {
      if (error instanceof Failure) return toFailureResponse(error);
      throw error;
    }
  };
};

/** Reports whether any rule is for a write, so that the write must be read and evaluated. */
const isMatched = (entries: readonly RuleAsWebhookEntry[], target: WriteTarget): boolean => {
  const request = buildAdmissionRequest(target, { group: "", version: "", kind: "" }, {});
  // A PUT or PATCH of an object that doesn't exist may create it.
  const created: AdmissionRequest = { ...request, operation: "CREATE" };
  const requests = target.operation === "UPDATE" ? [request, created] : [request];
  return requests.some((candidate) =>
    (["mutate", "validate"] as const).some((phase) => filterMatching(entries, phase, candidate).length > 0),
  );
};

/** Handles the creation (POST) or replacement (PUT) of an object: evaluates it, and sends it unless it is refused. */
const sendObject = async (write: InterceptedWrite): Promise<Response> => {
  const object = parseKubernetesObjectBody(write.body, write.headers);
  const old = write.method === "POST" ? undefined : await readCurrentObjectOrSendWrite(write);
  // The current object can't be read, and failurePolicy is Ignore: the write was sent without an evaluation.
  if (old instanceof Response) return old;
  const result = await evaluateWrite(write, object, old);
  return sendUnlessRefused(result, () => sendWrite(write, result.isChanged ? result.object : undefined));
};

/** Sends a DELETE unless a rule refuses the deletion of the current object. */
const sendDeletion = async (write: InterceptedWrite): Promise<Response> => {
  const old = await readCurrentObjectOrSendWrite(write);
  if (old instanceof Response) return old;
  // If the object doesn't exist, the request is sent, so that the API server answers with its error.
  if (old === undefined) return sendWrite(write);
  const dryRun = write.target.dryRun || hasDryRunOption(write);
  const result = await evaluateWrite({ ...write, target: { ...write.target, dryRun } }, undefined, old);
  return sendUnlessRefused(result, () => sendWrite(write));
};

/** Reports whether the body of a DELETE, which may contain options, makes it a dry run. */
const hasDryRunOption = ({ body, headers }: InterceptedWrite): boolean => {
  if (body.length === 0) return false;
  const options = parseBody(body, headers, [getMediaType(headers)]);
  return isMap(options) && Array.isArray(options.dryRun) && options.dryRun.includes("All");
};

const handlers: Record<string, (write: InterceptedWrite) => Promise<Response>> = {
  POST: sendObject,
  PUT: sendObject,
  PATCH: evaluateAndSendPatch,
  DELETE: sendDeletion,
};
