/* Reference kernels: logistic regression on packed records (x, y, offset, weight, padding), one thread.

   Compiled with -DT=double or -DT=float, the type of the records; all arithmetic is in double, as in tallbayes. A kernel
   works on tiles: linear predictors of a tile first, then the scalar functions in one loop over the tile, which gcc
   vectorises with exp and log1p of libmvec. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define TILE 256
#define STRIDE (TILE + 8) /* columns a power of two apart would fall into the same few sets of the cache */
#define AHEAD 16
#define WIDEST 256

#ifdef __AVX512F__
#define LANES 8
#else
#define LANES 4
#endif
typedef double vector __attribute__((vector_size(8 * LANES)));

/* gcc 12 loads a value again for each of its uses unless told that it may have changed in its register. */
#if defined(__x86_64__)
#define KEEP(x) __asm__("" : "+v"(x))
#else
#define KEEP(x) ((void)0)
#endif

static inline double softplus(double eta) { return fmax(eta, 0.0) + log1p(exp(-fabs(eta))); }

static inline double dot(const T *restrict x, const double *restrict theta, int d) {
  double total = 0.0;
  for (int c = 0; c < d; c++) total += x[c] * theta[c];
  return total;
}

static inline void prefetch_row(const T *row, int width) {
  for (int start = 0; start < width; start += 64 / (int)sizeof(T)) __builtin_prefetch(row + start);
}

/* out[j] = rho(other) - rho(theta) of row index[j], rho the Taylor residual at `reference`; plain differences. */
void residuals(const T *records, int width, int d, const int64_t *index, int64_t count, const double *theta,
               const double *other, const double *reference, double *restrict out) {
  double here[WIDEST], there[WIDEST], base[TILE], first[TILE], second[TILE], weight[TILE];
  for (int c = 0; c < d; c++) here[c] = theta[c] - reference[c], there[c] = other[c] - reference[c];
  for (int64_t start = 0; start < count; start += TILE) {
    int size = count - start < TILE ? (int)(count - start) : TILE;
    for (int j = 0; j < size; j++) {
      if (start + j + AHEAD < count) prefetch_row(records + index[start + j + AHEAD] * width, width);
      const T *x = records + index[start + j] * width;
      double a = 0.0, b = 0.0, e = 0.0;
      for (int c = 0; c < d; c++) e += x[c] * reference[c], a += x[c] * here[c], b += x[c] * there[c];
      base[j] = e + x[d + 1];
      first[j] = a;
      second[j] = b;
      weight[j] = x[d + 2];
    }
    for (int j = 0; j < size; j++) {
      double e = base[j], a = first[j], b = second[j];
      double z = exp(-fabs(e)), larger = 1.0 / (1.0 + z), smaller = z * larger, v = larger * smaller;
      double p = e >= 0.0 ? larger : smaller;
      out[start + j] = weight[j] * (softplus(e + a) - softplus(e + b) + (b - a) * (p + 0.5 * v * (a + b)));
    }
  }
}

static inline void scan(const T *records, int width, int d, int64_t start, int size, const double *theta, double *eta,
                        double *y, double *weight) {
  for (int j = 0; j < size; j++) {
    const T *x = records + (start + j) * width;
    eta[j] = dot(x, theta, d) + x[d + 1];
    y[j] = x[d];
    weight[j] = x[d + 2];
  }
}

double value(const T *records, int width, int d, int64_t n, const double *theta) {
  double eta[TILE], y[TILE], weight[TILE], total = 0.0;
  for (int64_t start = 0; start < n; start += TILE) {
    int size = n - start < TILE ? (int)(n - start) : TILE;
    scan(records, width, d, start, size, theta, eta, y, weight);
    for (int j = 0; j < size; j++) total += weight[j] * (y[j] * eta[j] - softplus(eta[j]));
  }
  return total;
}

double gradient(const T *records, int width, int d, int64_t n, const double *theta, double *restrict out) {
  double eta[TILE], y[TILE], weight[TILE], total = 0.0;
  for (int64_t start = 0; start < n; start += TILE) {
    int size = n - start < TILE ? (int)(n - start) : TILE, j = 0;
    scan(records, width, d, start, size, theta, eta, y, weight);
    for (int j = 0; j < size; j++) {
      double e = eta[j], z = exp(-fabs(e)), larger = 1.0 / (1.0 + z);
      total += weight[j] * (y[j] * e - fmax(e, 0.0) - log1p(z));
      eta[j] = weight[j] * (y[j] - (e >= 0.0 ? larger : z * larger));
    }
    for (; j + 4 <= size; j += 4) {
      const T *x = records + (start + j) * width;
      for (int c = 0; c < d; c++)
        out[c] += (eta[j] * x[c] + eta[j + 1] * x[width + c]) + (eta[j + 2] * x[2 * width + c] + eta[j + 3] * x[3 * width + c]);
    }
    for (; j < size; j++)
      for (int c = 0; c < d; c++) out[c] += eta[j] * records[(start + j) * width + c];
  }
  return total;
}

/* Gradient and lower triangle of the Hessian, by blocks of 2 x 4 entries that stay in registers. */
double hessian(const T *records, int width, int d, int64_t n, const double *theta, double *restrict out,
               double *restrict gram) {
  int padded = (d + 3) / 4 * 4;
  double eta[TILE], y[TILE], weight[TILE], curvature[TILE], total = 0.0;
  _Alignas(64) double scaled[2][STRIDE];
  double(*columns)[STRIDE] = aligned_alloc(64, padded * sizeof *columns);
  for (int c = 0; c < padded; c++)
    for (int j = 0; j < TILE; j++) columns[c][j] = 0.0;
  for (int64_t start = 0; start < n; start += TILE) {
    int size = n - start < TILE ? (int)(n - start) : TILE;
    scan(records, width, d, start, size, theta, eta, y, weight);
    for (int j = 0; j < size; j++)
      for (int c = 0; c < d; c++) columns[c][j] = records[(start + j) * width + c];
    for (int j = 0; j < size; j++) {
      double e = eta[j], z = exp(-fabs(e)), larger = 1.0 / (1.0 + z), smaller = z * larger;
      total += weight[j] * (y[j] * e - fmax(e, 0.0) - log1p(z));
      eta[j] = weight[j] * (y[j] - (e >= 0.0 ? larger : smaller));
      curvature[j] = -weight[j] * smaller * larger;
    }
    for (int j = size; j < TILE; j++) eta[j] = curvature[j] = 0.0;
    for (int c = 0; c < d; c++) {
      double sum = 0.0;
      for (int j = 0; j < TILE; j++) sum += eta[j] * columns[c][j];
      out[c] += sum;
    }
    for (int a = 0; a < d; a += 2) {
      for (int k = 0; k < 2; k++)
        for (int j = 0; j < TILE; j++) scaled[k][j] = curvature[j] * columns[a + k][j];
      for (int b = 0; b < a + 2; b += 4) {
        vector sums[2][4] = {{{0.0}}};
        for (int j = 0; j < TILE; j += LANES) {
          vector left[2], right[4];
          for (int k = 0; k < 2; k++) left[k] = *(vector *)&scaled[k][j];
          for (int l = 0; l < 4; l++) right[l] = *(vector *)&columns[b + l][j];
          for (int k = 0; k < 2; k++) KEEP(left[k]);
          for (int l = 0; l < 4; l++) KEEP(right[l]);
          for (int k = 0; k < 2; k++)
            for (int l = 0; l < 4; l++) sums[k][l] += left[k] * right[l];
        }
        for (int k = 0; k < 2 && a + k < d; k++)
          for (int l = 0; l < 4 && b + l <= a + k; l++) {
            double sum = 0.0;
            for (int i = 0; i < LANES; i++) sum += sums[k][l][i];
            gram[(a + k) * d + b + l] += sum;
          }
      }
    }
  }
  free(columns);
  return total;
}
