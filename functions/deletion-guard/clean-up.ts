import { Failure } from "postern/failure";
import type { Pod } from "postern/kubernetes/core/v1";
import type { Ledger } from "postern/ledger";
import type { HttpsRequest, HttpsResponse } from "postern/needs";
import { buildPodUrl } from "./pod-address.ts";
import type { DeletionGuardSettings } from "./pod-state.ts";

/** The milliseconds after which a call to start a clean-up may be repeated if its result wasn't stored. */
const retryMilliseconds = 60_000;
/** The seconds for which the ledger keeps a call. */
const rememberSeconds = 30 * 24 * 3600;
/** The most milliseconds of a call to start a clean-up. The rest of the review's time is for the ledger. */
const callMilliseconds = 3000;

interface CleanUpContext {
  settings: DeletionGuardSettings;
  now: Date;
  /** For each pod, by its UID: the HTTP call that started its clean-up. It is stored so that it isn't repeated. */
  calls: Ledger;
  ask(request: HttpsRequest): Promise<HttpsResponse>;
}

/** Reports whether the URL of the setting `finished.check` answers with 2xx. Throws if it can't be reached. */
export const askPodWhetherFinished = async (
  pod: Pod,
  { settings: { finished, addresses, ca }, ask }: CleanUpContext,
): Promise<boolean> => {
  const url = finished.check && buildPodUrl(finished.check, pod, addresses);
  if (!url) return false;
  return isSuccess((await ask({ url, ...(ca && { ca }) })).status);
};

/**
 * A call to start a clean-up, as the ledger stores it. If it isn't done, another review may repeat it after `until`, a
 * time in milliseconds since 1970.
 */
interface Call {
  until: number;
  isDone: boolean;
}

/**
 * Calls the clean-up URL for a pod that a user wants to delete, unless it was called before. Returns the outcome for
 * the audit log.
 */
export const startCleanUp = async (pod: Pod, { settings, now, calls, ask }: CleanUpContext): Promise<string> => {
  const url = buildPodUrl(settings.cleanUp, pod, settings.addresses);
  if (url === undefined) return "the pod has no address that may be called";
  const changeStoredCall = (update: (stored: Call | undefined) => Call | undefined) =>
    calls.change<Call>([pod.metadata?.uid ?? ""], ([stored]) => [update(stored)], rememberSeconds);
  const newCall = { until: now.getTime() + retryMilliseconds, isDone: false };
  // Of concurrent reviews, only one stores its call, and then makes it.
  let mayCall = false;
  await changeStoredCall((stored) => {
    mayCall = !stored || (!stored.isDone && stored.until <= now.getTime());
    return mayCall ? newCall : stored;
  });
  if (!mayCall) return "it was started before";
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
  // A failed call is deleted from the ledger, so that the next review calls again. If the ledger can't be changed, a
  // review may repeat the call after `retryMilliseconds`.
  await changeStoredCall(() => (failure ? undefined : { ...newCall, isDone: true })).catch(ignoreFailure);
  return failure ?? "it was started";
};

const ignoreFailure = (error: unknown) => {
  if (!(error instanceof Failure)) throw error;
};

const isSuccess = (status: number) => status >= 200 && status <= 299;
