import {
  AwsError,
  type AwsReply,
  type AwsRequest,
  type AwsService,
  type CallRecorder,
  readCaller,
} from "./aws-service.ts";

/** moto's S3, extended by the documented behaviour that Postern's locks rely on and that moto lacks. */
export interface S3 extends AwsService {
  /** The milliseconds by which S3's clock is ahead. The dates of answers and objects come from this clock. */
  clockOffset: number;
}

const conflict = "The conditional request cannot succeed due to a conflicting operation against this resource.";

/**
 * Opens the S3 of a moto server. Some calls also need rights to other actions: `recorder.allow` decides whether a
 * caller has these rights.
 */
export const openS3 = (moto: AwsService, recorder: Pick<CallRecorder, "allow">): S3 => {
  /** The time at which each object was last written, as S3 formats it. */
  const modified = new Map<string, string>();
  /** The last call for each object. Calls for one object run in order, so a read gets content and date of one write. */
  const queues = new Map<string, Promise<unknown>>();
  /** The objects with a conditional write in progress. */
  const busy = new Set<string>();

  /** The buckets' policies, which moto would evaluate without their conditions. */
  const policies = new Map<string, Buffer>();

  const answerPolicy = ({ method, body }: AwsRequest, bucket: string): AwsReply => {
    if (method === "PUT") policies.set(bucket, body);
    return { status: method === "PUT" ? 204 : 200, headers: {}, body: policies.get(bucket) ?? "" };
  };
  const requireRight = (request: AwsRequest, action: string, name: string) => {
    const call = { service: "s3", action: `s3:${action}`, name, caller: readCaller(request) };
    if (recorder.allow?.(call) === false) throw new AwsError(403, "AccessDenied", "Access Denied");
  };
  const runInOrder = <T>(name: string, act: () => Promise<T>): Promise<T> => {
    const run = (queues.get(name) ?? Promise.resolve()).then(act, act);
    queues.set(name, run);
    return run;
  };
  const write = async (request: AwsRequest, name: string): Promise<AwsReply> => {
    const isConditional = request.headers["if-match"] !== undefined || request.headers["if-none-match"] !== undefined;
    // S3 has to read the object to compare its ETag, so the caller needs the right to read it.
    if (request.headers["if-match"] !== undefined) requireRight(request, "GetObject", name);
    if (isConditional && busy.has(name)) throw new AwsError(409, "ConditionalRequestConflict", conflict);
    if (isConditional) busy.add(name);
    return runInOrder(name, async () => {
      const reply = await moto.answer(request);
      if (reply.status < 300) modified.set(name, formatNow());
      return reply;
    }).finally(() => isConditional && busy.delete(name));
  };
  const read = (request: AwsRequest, name: string): Promise<AwsReply> =>
    runInOrder(name, async () => {
      const reply = await moto.answer(request);
      // A caller without the right to list must not learn that an object is missing.
      if (reply.status === 404) requireRight(request, "ListBucket", name.replace(/\/.*/, ""));
      const date = modified.get(name);
      return date === undefined ? reply : { ...reply, headers: { ...reply.headers, "last-modified": date } };
    });
  // Date.now() isn't used, because a test may replace Date by the clock of the caller.
  const formatNow = () => new Date(performance.timeOrigin + performance.now() + s3.clockOffset).toUTCString();

  const s3: S3 = {
    ...moto,
    clockOffset: 0,
    answer: async (request) => {
      const { name } = moto.identify(request);
      const objectHandlers: Record<string, typeof read> = { GET: read, HEAD: read, PUT: write, DELETE: write };
      const handle = name.includes("/") ? objectHandlers[request.method] : undefined;
      if (request.query.has("policy")) return answerPolicy(request, name);
      const reply = await (handle ? handle(request, name) : moto.answer(request));
      return { ...reply, headers: { ...reply.headers, date: formatNow() } };
    },
  };
  return s3;
};
