import {
  AwsError,
  type AwsReply,
  type AwsRequest,
  type AwsService,
  type CallRecorder,
  readCaller,
} from "./aws-service.ts";

/** S3 as moto has it, with what moto leaves out of S3's documentation and a lock relies on. */
export interface S3 extends AwsService {
  /** The milliseconds by which its clock is ahead. It dates answers and objects by that clock. */
  ahead: number;
}

const conflict = "The conditional request cannot succeed due to a conflicting operation against this resource.";

/** Every right that is asked for beside the call's own is asked of `ear.allow`, as that of a call is. */
export const openS3 = (moto: AwsService, ear: Pick<CallRecorder, "allow">): S3 => {
  const modified = new Map<string, string>();
  /** The last call for each object: calls for one object run one after the other, so that each has its own date. */
  const queues = new Map<string, Promise<unknown>>();
  /** Objects that a conditional write is under way for. */
  const busy = new Set<string>();

  const requireRight = (asked: AwsRequest, action: string, name: string) => {
    const heard = { service: "s3", action: `s3:${action}`, name, caller: readCaller(asked) };
    if (ear.allow?.(heard) === false) throw new AwsError(403, "AccessDenied", "Access Denied");
  };
  const runInOrder = <T>(name: string, act: () => Promise<T>): Promise<T> => {
    const run = (queues.get(name) ?? Promise.resolve()).then(act, act);
    queues.set(name, run);
    return run;
  };
  const write = async (asked: AwsRequest, name: string): Promise<AwsReply> => {
    const isConditional = asked.headers["if-match"] !== undefined || asked.headers["if-none-match"] !== undefined;
    // S3 reads the object to compare its ETag.
    if (asked.headers["if-match"] !== undefined) requireRight(asked, "GetObject", name);
    if (isConditional && busy.has(name)) throw new AwsError(409, "ConditionalRequestConflict", conflict);
    if (isConditional) busy.add(name);
    return runInOrder(name, async () => {
      const reply = await moto.answer(asked);
      if (reply.status < 300) modified.set(name, now());
      return reply;
    }).finally(() => isConditional && busy.delete(name));
  };
  const read = (asked: AwsRequest, name: string): Promise<AwsReply> =>
    runInOrder(name, async () => {
      const reply = await moto.answer(asked);
      // A caller without the right to list must not learn that an object is missing.
      if (reply.status === 404) requireRight(asked, "ListBucket", name.replace(/\/.*/, ""));
      const date = modified.get(name);
      return date === undefined ? reply : { ...reply, headers: { ...reply.headers, "last-modified": date } };
    });
  // Not by Date, which a test may set to what the caller's clock shows.
  const now = () => new Date(performance.timeOrigin + performance.now() + s3.ahead).toUTCString();

  const s3: S3 = {
    ...moto,
    ahead: 0,
    answer: async (asked) => {
      const { name } = moto.about(asked);
      const acts: Record<string, typeof read> = { GET: read, HEAD: read, PUT: write, DELETE: write };
      const act = name.includes("/") ? acts[asked.method] : undefined;
      const reply = await (act ? act(asked, name) : moto.answer(asked));
      return { ...reply, headers: { ...reply.headers, date: now() } };
    },
  };
  return s3;
};
