// Which exceptions of postern.yaml end soon, or have ended.
import { formatException, getExceptionEnd } from "#lib/core/exceptions.ts";
import type { ClusterConfig, PosternConfig } from "./config.ts";

const day = 86_400_000;
/** The number of days before its end from which on an exception is named. */
const noticeDays = 14;

/** Returns a sentence for each exception that ends within two weeks or has ended, of rules that are on. */
export const describeEndingExceptions = (
  clusters: Iterable<Pick<ClusterConfig | PosternConfig, "rules">>,
  now: Date,
): string[] => {
  const found = [...clusters].flatMap(({ rules }) =>
    [...rules].flatMap(([rule, { mode, exempt }]) =>
      mode === "off" ? [] : (exempt?.exceptions ?? []).map((exception) => ({ rule, exception })),
    ),
  );
  const sentences = found.flatMap(({ rule, exception: { place, ...exception } }) => {
    const end = getExceptionEnd(exception.until);
    const left = end - now.getTime();
    const what = `${place} the exception from ${rule} ${formatException(exception)}`;
    if (left <= 0) return [`${what} has ended; it can be deleted`];
    return left <= noticeDays * day ? [`${what} ends at ${new Date(end).toISOString()}`] : [];
  });
  return [...new Set(sentences)];
};
