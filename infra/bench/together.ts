interface Stoppable {
  stop(): Promise<void>;
}

/** Does something with what runs meanwhile, and stops all of it, the last one first, however that ends. */
export const together = async <T>(
  act: (keep: <S extends Stoppable>(starting: Promise<S>) => Promise<S>) => Promise<T>,
): Promise<T> => {
  const running: Stoppable[] = [];
  try {
    return await act(async (starting) => {
      const started = await starting;
      running.push(started);
      return started;
    });
  } finally {
    for (const one of running.reverse()) await one.stop();
  }
};
