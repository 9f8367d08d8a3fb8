// This file finds exceptions in postern.yaml that end soon or have ended.
import { formatException, getExceptionEnd } from "#lib/core/exceptions.ts";
import type { ClusterConfig, PosternConfig } from "./config.ts";

const dayMilliseconds = 86_400_000;
/** An exception is reported from so many days before its end. */
const noticeDays = 14;

/** Returns a sentence for each exception that has ended or ends within two weeks. Rules that are off are skipped. */
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
    const millisecondsLeft = end - now.getTime();
    const what = `${place} the exception from ${rule} ${formatException(exception)}`;
    if (millisecondsLeft <= 0) return [`${what} has ended; it can be deleted`];
    const isSoon = millisecondsLeft <= noticeDays * dayMilliseconds;
    return isSoon ? [`${what} ends at ${new Date(end).toISOString()}`] : [];
  });
  return [...new Set(sentences)];
};
