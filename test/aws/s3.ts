import { type Asked, callerOf, type Ear, Refusal, type Reply, type Service } from "./exchange.ts";

/** S3 as moto has it, with what moto leaves out of S3's documentation and a lock relies on. */
export interface S3 extends Service {
  /** How many milliseconds its clock is ahead of this machine's. It dates answers and objects by that clock. */
  ahead: number;
}

const conflict = "The conditional request cannot succeed due to a conflicting operation against this resource.";

/** Every right that is asked for beside the call's own is asked of `ear.allow`, as that of a call is. */
export const openS3 = (moto: Service, ear: Pick<Ear, "allow">): S3 => {
  const modified = new Map<string, string>();
  /** Keys that a conditional write is under way for. */
  const busy = new Set<string>();
  const may = (asked: Asked, action: string, name: string) =>
    ear.allow?.({ service: "s3", action: `s3:${action}`, name, caller: callerOf(asked) }) ?? true;

  const write = async (asked: Asked, name: string): Promise<Reply> => {
    const { "if-match": ifMatch, "if-none-match": ifNoneMatch } = asked.headers;
    // S3 reads the object to compare its ETag, and asks for the right to.
    if (ifMatch !== undefined && !may(asked, "GetObject", name))
      throw new Refusal(403, "AccessDenied", "Access Denied");
    if (ifMatch === undefined && ifNoneMatch === undefined) return moto.answer(asked);
    if (busy.has(name)) throw new Refusal(409, "ConditionalRequestConflict", conflict);
    busy.add(name);
    return moto.answer(asked).finally(() => busy.delete(name));
  };

  const s3: S3 = {
    ...moto,
    ahead: 0,
    answer: async (asked) => {
      const { name } = moto.about(asked);
      const [bucket = "", ...key] = name.split("/");
      const isObject = key.length > 0 && asked.query.size <= 1;
      const { method } = asked;
      // Not by Date, which a test may set to what the clock of the one who asks shows.
      const now = () => new Date(performance.timeOrigin + performance.now() + s3.ahead).toUTCString();
      const isWrite = method === "PUT" || method === "DELETE";
      const reply = await (isObject && isWrite ? write(asked, name) : moto.answer(asked));
      const headers = { ...reply.headers, date: now() };
      if (isObject && isWrite && reply.status < 300) modified.set(name, now());
      if (!isObject || isWrite) return { ...reply, headers };
      // Whether a key is missing is what a listing tells.
      if (reply.status === 404 && !may(asked, "ListBucket", bucket))
        throw new Refusal(403, "AccessDenied", "Access Denied");
      const date = modified.get(name);
      return { ...reply, headers: { ...headers, ...(date !== undefined && { "last-modified": date }) } };
    },
  };
  return s3;
};
