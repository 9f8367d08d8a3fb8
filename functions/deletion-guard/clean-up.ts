import { Failure } from "postern/failure";
import type { Pod } from "postern/kubernetes/core/v1";
import type { Ledger } from "postern/ledger";
import type { HttpsRequest, HttpsResponse } from "postern/needs";
import { buildPodUrl } from "./pod-address.ts";
import type { DeletionGuardSettings } from "./pod-state.ts";

/** The milliseconds until an unfinished clean-up call may be repeated, and the seconds until a call is forgotten. */
const retryMilliseconds = 60_000;
const rememberSeconds = 30 * 24 * 3600;
/** The most milliseconds of a clean-up call. The review's other time is for the ledger. */
const callMilliseconds = 3000;

interface CleanUpContext {
  settings: DeletionGuardSettings;
  now: Date;
  calls: Ledger;
  ask(request: HttpsRequest): Promise<HttpsResponse>;
}

/** Reports whether the pod's check answers with 2xx. Throws if the check can't be reached. */
export const askPodWhetherFinished = async (
  pod: Pod,
  { settings: { finished, addresses, ca }, ask }: CleanUpContext,
): Promise<boolean> => {
  const url = finished.check && buildPodUrl(finished.check, pod, addresses);
  if (!url) return false;
  return isSuccess((await ask({ url, ...(ca && { ca }) })).status);
};

/** A call in the ledger. Other reviews don't repeat it before `until`, in milliseconds since 1970. */
interface Call {
  until: number;
  isDone: boolean;
}

/**
 * Calls the clean-up URL of a pod that is to be deleted, unless it was called before; returns the outcome for the
 * audit log.
 */
export const startCleanUp = async (pod: Pod, { settings, now, calls, ask }: CleanUpContext): Promise<string> => {
  const url = buildPodUrl(settings.cleanUp, pod, settings.addresses);
  if (url === undefined) return "the pod has no address that may be called";

  const change = (update: (kept: Call | undefined) => Call | undefined) =>
    calls.change<Call>([pod.metadata?.uid ?? ""], ([kept]) => [update(kept)], rememberSeconds);
  const newCall = { until: now.getTime() + retryMilliseconds, isDone: false };
  let isMine = false;
  await change((kept) => {
    isMine = !kept || (!kept.isDone && kept.until <= now.getTime());
    return isMine ? newCall : kept;
  });
  if (!isMine) return "it was started before";
  const call = {
    url,
    method: "POST",
    milliseconds: callMilliseconds,
    ...(settings.ca && { ca: settings.ca }),
  } as const;
  const failure = await ask(call).then(
    ({ status }) => (isSuccess(status) ? undefined : `it could not be started: ${status}`),
    (error) => {
      if (error instanceof Failure) return `it could not be started: ${error.message}`;
      throw error;
    },
  );
  // A failed call is deleted from the ledger, so that the next review calls again. The pod is kept in any case: if the
  // entry can't be changed, it ends as an unfinished call does.
  await change(() => (failure ? undefined : { ...newCall, isDone: true })).catch(ignoreFailure);
  return failure ?? "it was started";
};

const ignoreFailure = (error: unknown) => {
  if (!(error instanceof Failure)) throw error;
};

const isSuccess = (status: number) => status >= 200 && status <= 299;
