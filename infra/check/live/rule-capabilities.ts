import { createAnswerCache } from "#lib/cluster/answer-cache.ts";
import { getAwsServiceUrl } from "#lib/cluster/credentials.ts";
import { sendRequest, UnansweredError } from "#lib/cluster/https-request.ts";
import { createLiveCapabilities } from "#lib/cluster/live-capabilities.ts";
import { Failure } from "#lib/failure.ts";
import { createMemoryLedger, openRuleLedger } from "#lib/ledger.ts";
import type { Capabilities, HttpsRequest } from "#lib/needs.ts";
import type { ClusterConnection } from "../../clusters/api.ts";

/**
 * Opens the capabilities of rules in an audit: they read the audited cluster, write nothing, and send requests to
 * `hosts` only. Each call of the returned function begins with an empty ledger, in which rules such as event-rate-limit
 * count requests: an object must not be refused because an audit evaluates many objects in a short time.
 */
export const prepareLiveCheckCapabilities = (
  cluster: string,
  connection: ClusterConnection,
  hosts: readonly string[],
): ((tell: (sentence: string) => void, milliseconds: number) => Capabilities) => {
  const open = createLiveCapabilities(
    { [cluster]: connection },
    { cache: createAnswerCache(), print: () => {}, send: createReadOnlySender(connection) },
  );
  return (tell, milliseconds) => {
    const ledger = createMemoryLedger();
    const giveUp = (sentence: string): never => {
      tell(sentence);
      throw new Failure(503, sentence);
    };
    const requireHost = (host: string) =>
      hosts.includes(host) || giveUp(`it would call ${host}; --call ${host} allows that`);
    const getHostname = ({ url }: HttpsRequest): string =>
      URL.canParse(url) ? new URL(url).hostname : giveUp(`it would call ${url}, which is not a valid address`);
    const refuseWrite =
      (act: string): Capabilities["create"] & Capabilities["updateStatus"] =>
      async ({ resource }, { metadata }) => {
        const { name, namespace } = metadata ?? {};
        const where = namespace === undefined ? "" : ` in namespace ${namespace}`;
        return giveUp(`it would ${act} ${resource} "${name}"${where}, and an audit writes nothing`);
      };
    const restrictToReads = (capabilities: Capabilities): Capabilities => ({
      ...capabilities,
      // `get` doesn't wait here: an audited object is stored already, and what it refers to won't appear shortly.
      get: (kind, name, namespace, freshness) => capabilities.get(kind, name, namespace, { ...freshness, patience: 0 }),
      create: refuseWrite("create"),
      updateStatus: refuseWrite("update the status of"),
      https: async (request) => requireHost(getHostname(request)) && capabilities.https(request),
      http: async (request) => requireHost(getHostname(request)) && capabilities.http(request),
      // EC2 is the only service of AWS that rules can call.
      aws: async (action, request) =>
        requireHost(getAwsServiceUrl("ec2", request.region).hostname) && capabilities.aws(action, request),
      ledger: (rule) => openRuleLedger(ledger, rule),
      // The capabilities without cached answers are restricted, too.
      anew: () => {
        const fresh = capabilities.anew?.();
        return fresh && restrictToReads(fresh);
      },
    });
    return restrictToReads(open(cluster, milliseconds));
  };
};

const accessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/** Returns a sender that throws for all requests but reads and SubjectAccessReviews: a cluster doesn't store those. */
const createReadOnlySender =
  ({ server }: ClusterConnection): typeof sendRequest =>
  async (url, options, ...rest) => {
    if (options.method !== "GET" && url !== `${server}${accessReviews}`)
      throw new UnansweredError("an audit writes nothing there");
    return sendRequest(url, options, ...rest);
  };
